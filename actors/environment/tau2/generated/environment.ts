/** Generated tasks over the benchmark's retail database, alone and in few words; scored by the benchmark's own evaluator. */
import type { Action, Environment, Message, ResetOptions, ResetResult, StepResult } from '../../types.ts';
import { type DomainData, tau2Data } from '../data.ts';
import { evaluateUnjudged } from '../evaluate.ts';
import type { RetailWorld } from '../retail/world.ts';
import { doNothingRate } from '../score.ts';
import { Session } from '../session.ts';
import { type Tau2Task, ticketOf } from '../tasks.ts';
import { CompactDesk } from './desk.ts';
import { type GeneratedOptions, readOptions } from './options.ts';
import { type GeneratedTask, generateTask } from './task.ts';
import { CLOSINGS, PARDON, RULES, words } from './words.ts';

const NONE: ReadonlySet<never> = new Set();
/** Turns in a row or not that nobody could read. */
const PARDONS = 3;
/** Words of an official task that are shown; most are not in the vocabulary. */
const TICKET = 120;

/** The last seeds of all stand for the benchmark's own test tasks, in order: validation's, so that no run trains on them. */
export const officialSeed = (index: number): number => 0xffffffff - index;
const OFFICIAL = 64;

function officialTask(data: DomainData, seed: number): Tau2Task | undefined {
  const index = 0xffffffff - seed;
  const id = index < OFFICIAL ? data.split('test')[index] : undefined;
  return id === undefined ? undefined : data.task(id);
}

export class GeneratedEnvironment implements Environment {
  readonly #given: Record<string, unknown>;
  #episode: Episode | undefined;

  constructor(options: Record<string, unknown> = {}) {
    this.#given = options;
    readOptions(options);
  }

  reset({ seed, options }: ResetOptions): ResetResult {
    const o = readOptions({ ...this.#given, ...options });
    const data = tau2Data(o.data, 'retail');
    const official = officialTask(data, seed);
    this.#episode = new Episode(data, official ?? generateTask(data, seed), o);
    return this.#episode.opening();
  }

  step(action: Action): StepResult {
    if (!this.#episode) throw new Error('tau2-retail-generated: step without a reset');
    return this.#episode.step(action);
  }

  close(): void {
    this.#episode = undefined;
  }
}

class Episode {
  readonly #data: DomainData;
  readonly #task: Tau2Task;
  /** Undefined for a task of the benchmark's own. */
  readonly #generated: GeneratedTask | undefined;
  readonly #o: GeneratedOptions;
  readonly #desk: CompactDesk;
  readonly #counts = { turns: 0, toolCalls: 0, malformed: 0, errors: 0 };
  #wroteUnidentified = false;

  constructor(data: DomainData, task: GeneratedTask | Tau2Task, o: GeneratedOptions) {
    this.#data = data;
    this.#generated = 'wish' in task ? task : undefined;
    this.#task = 'wish' in task ? task.task : task;
    this.#o = o;
    this.#desk = new CompactDesk(new Session(data.domain, { fixes: NONE, solo: true }) as Session<RetailWorld>);
  }

  opening(): ResetResult {
    const told = this.#generated?.wish ?? known(ticketOf(this.#task));
    return {
      observation: [
        { role: 'system', content: RULES },
        { role: 'user', content: told },
      ],
      info: { ...this.#labels(), task: this.#task.id },
    };
  }

  step({ text }: Action): StepResult {
    this.#counts.turns++;
    const said = text.trim().split(/\s+/);
    if (said.length === 1 && (CLOSINGS as readonly string[]).includes(said[0]!)) return this.#end(said[0]!);
    if (said[0] !== 'call') {
      this.#counts.malformed++;
      return this.#goOn({ role: 'user', content: PARDON });
    }
    const answer = this.#desk.call(said.slice(1));
    if (answer.unread) this.#counts.malformed++;
    else this.#counts.toolCalls++;
    if (answer.error) this.#counts.errors++;
    if (answer.wrote && !this.#desk.identified) this.#wroteUnidentified = true;
    return this.#goOn({ role: 'tool', content: answer.text });
  }

  #goOn(message: Message): StepResult {
    const { turns, errors, malformed } = this.#counts;
    if (turns >= this.#o.maxTurns || errors >= this.#o.maxErrors || malformed >= PARDONS) return this.#end(undefined, message);
    return { observation: [message], reward: 0, terminated: false, truncated: false, info: {} };
  }

  #end(closing: string | undefined, message?: Message): StepResult {
    const closed = closing !== undefined;
    const messages = [...this.#desk.messages, { role: 'assistant' as const, content: closing ?? '' }];
    const evaluation = evaluateUnjudged({
      domain: this.#data.domain,
      task: this.#task,
      messages,
      termination: closed ? 'agent_stop' : 'max_steps',
      fixes: NONE,
      solo: true,
    });
    const right = this.#generated === undefined || closing === (this.#generated.call ? 'done' : 'denied');
    const parts = {
      closed: Number(closed),
      db: closed ? Number(evaluation.dbMatch) : 0,
      told: this.#generated ? Number(right) : closed ? evaluation.reward : 0,
      identified: Number(!this.#wroteUnidentified),
    };
    return {
      observation: message ? [message] : [],
      reward: parts.closed * parts.db * parts.told * parts.identified,
      terminated: closed,
      truncated: !closed,
      info: { rewardParts: parts, ...this.#labels(), task: this.#task.id, ...this.#counts },
    };
  }

  #labels(): Record<string, string> {
    const official = this.#generated === undefined;
    return {
      benchmark: official ? 'tau2-retail, compact' : 'tau2-retail-generated',
      taskVersion: this.#data.version,
      rewardBasis: official ? 'DB x COMMUNICATE (no judge)' : 'DB x TOLD',
      user: 'solo',
      ...(official ? { doNothing: doNothingRate(this.#data, 'test', NONE) } : {}),
    };
  }
}

const vocabulary = new Set(words());

/** What of a text the vocabulary has words for; the rest is an unknown word. */
function known(text: string): string {
  const said = text.toLowerCase().match(/[a-z]+|\d/g) ?? [];
  return said
    .slice(0, TICKET)
    .map((word) => (vocabulary.has(word) ? word : '<|unk|>'))
    .join(' ');
}
