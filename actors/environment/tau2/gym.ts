/** The original's AgentGymEnv: strings in, strings out. For comparison with it; training uses the environments `tau2-*`. */
import { callText, parseActionText } from './action-text.ts';
import type { DomainData } from './data.ts';
import { type Evaluation, evaluate, type Judge } from './evaluate.ts';
import { Protocol, type UserReply } from './protocol.ts';
import type { Fixes } from './settings.ts';
import type { Tau2Message } from './tasks.ts';

export interface GymOptions {
  data: DomainData;
  taskId: string;
  maxSteps?: number;
  maxErrors?: number;
  /** Absent: solo. */
  user?: UserReply | undefined;
  allMessagesAsObservation?: boolean;
  fixes?: Fixes;
  judge?: Judge;
}

export interface GymStep {
  observation: string;
  reward: number;
  terminated: boolean;
  truncated: false;
  evaluation?: Evaluation;
}

export class Tau2Gym {
  readonly #o: GymOptions;
  #protocol: Protocol<unknown> | undefined;

  constructor(o: GymOptions) {
    this.#o = o;
  }

  get protocol(): Protocol<unknown> | undefined {
    return this.#protocol;
  }

  async reset(): Promise<string> {
    const { data, taskId, fixes = new Set(), user, maxSteps, maxErrors } = this.#o;
    this.#protocol = new Protocol({
      domain: data.domain,
      task: data.task(taskId),
      fixes,
      user,
      ...(maxSteps === undefined ? {} : { maxSteps }),
      ...(maxErrors === undefined ? {} : { maxErrors }),
    });
    await this.#protocol.start();
    return this.#protocol.done ? '' : this.#observation();
  }

  async step(action: string): Promise<GymStep> {
    const protocol = this.#protocol;
    if (!protocol) throw new Error('Orchestrator not initialized. Call reset() first.');
    if (protocol.done) return { observation: '', reward: 0, terminated: true, truncated: false };
    const parsed = parseActionText(action);
    if (!parsed)
      return { observation: 'Invalid action with error: Action cannot be empty', reward: 0, terminated: false, truncated: false };
    await ('call' in parsed ? protocol.act(undefined, [parsed.call]) : protocol.act(parsed.text));
    const observation = protocol.done && !protocol.lastForAgent ? '' : this.#observation();
    if (!protocol.done) return { observation, reward: 0, terminated: false, truncated: false };
    const { data, taskId, fixes = new Set(), judge } = this.#o;
    const evaluation = await evaluate({
      domain: data.domain,
      task: data.task(taskId),
      messages: protocol.trajectory,
      termination: protocol.termination!,
      fixes,
      ...(this.#o.user ? {} : { solo: true }),
      judge,
    });
    return { observation, reward: evaluation.reward, terminated: true, truncated: false, evaluation };
  }

  /** What came after the agent's last message, or all of it. */
  #observation(): string {
    const { seen } = this.#protocol!;
    const lines = this.#o.allMessagesAsObservation ? seen : seen.slice(seen.findLastIndex((m) => m.role === 'assistant') + 1);
    return lines.map(line).join('\n');
  }
}

function line(m: Tau2Message): string {
  return `${m.role}: ${m.tool_calls ? m.tool_calls.map(callText).join(', ') : (m.content ?? 'None')}`;
}
