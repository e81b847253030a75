/** The desk as an environment: takes turns, answers as tool or as user, keeps the budgets, and scores the end. */
import type { Action, Environment, Message, ResetOptions, ResetResult, StepResult } from '../types.ts';
import { type Solution, solve } from './solution.ts';
import { type DeskSettings, type DeskTask, deskSettings, generateTask, rulesText } from './task.ts';
import { CLOSING, REQUESTS, RESULT, STANDINGS, TOOLS, type ToolName, USER } from './words.ts';
import { DeskWorld, type UserRequest } from './world.ts';

/** Factors of the score, each 0 or 1; the score is their product. */
export interface DeskRewardParts {
  /** The agent itself brought the call to an end. */
  closed: number;
  /** Both halves of the world are as the reference solution leaves them. */
  state: number;
  /** The amount named at the end is the amount due; transferred exactly where the rules say so. */
  told: number;
  /** No refund went out before the fault was flagged. */
  order: number;
  /** The caller was looked up before anything was written. */
  identified: number;
}

export interface DeskCounts {
  turns: number;
  toolCalls: number;
  malformed: number;
  errors: number;
  /** Turns that changed something in either half of the world. */
  changes: number;
}

const WALK = new RegExp(`^${REQUESTS.walk} (\\d)$`);
const RULE = new RegExp(`^${REQUESTS.rule} (${STANDINGS.join('|')}) (full|half|none|transfer|\\d)$`);
export const CLOSE = new RegExp(`^${CLOSING} (\\d)$`);
const ASKED = new Map<string, UserRequest>(
  (['code', 'bluetooth', 'latch', 'light'] as const).map((request) => [REQUESTS[request], request]),
);
const WRITES: ReadonlySet<ToolName> = new Set<ToolName>(['lock', 'end_ride', 'flag', 'refund', 'transfer']);

export class DeskEnvironment implements Environment {
  readonly #options: Record<string, unknown>;
  readonly #settings: DeskSettings;
  #episode: Episode | undefined;

  constructor(options: Record<string, unknown> = {}) {
    this.#options = options;
    this.#settings = deskSettings(options);
  }

  reset({ seed, options }: ResetOptions): ResetResult {
    const settings = options ? deskSettings({ ...this.#options, ...options }) : this.#settings;
    this.#episode = new Episode(generateTask(seed, settings), settings);
    return { observation: opening(this.#episode.task), info: { level: settings.level } };
  }

  step(action: Action): StepResult {
    if (!this.#episode) throw new Error('desk: step without a reset');
    return this.#episode.step(action);
  }

  close(): void {
    this.#episode = undefined;
  }

  /** The task being played; for experts, scripts and tests, never for a policy. */
  get task(): DeskTask | undefined {
    return this.#episode?.task;
  }
}

export function opening(task: DeskTask): Message[] {
  return [
    { role: 'system', content: rulesText(task) },
    { role: 'user', content: task.wantsRefund ? `${USER.stuck} ${USER.refund}` : USER.stuck },
  ];
}

class Episode {
  readonly task: DeskTask;
  readonly #settings: DeskSettings;
  readonly #world: DeskWorld;
  #solution: Solution | undefined;
  readonly #counts: DeskCounts = { turns: 0, toolCalls: 0, malformed: 0, errors: 0, changes: 0 };
  #identified = false;
  #wroteUnidentified = false;
  #flagged = false;
  #refundedUnflagged = false;
  #over = false;

  constructor(task: DeskTask, settings: DeskSettings) {
    this.task = task;
    this.#settings = settings;
    this.#world = new DeskWorld(task);
  }

  step(action: Action): StepResult {
    if (this.#over) throw new Error('desk: step after the end of the episode');
    this.#counts.turns++;
    const call = action.toolCalls[0];
    if (action.malformed !== undefined || action.toolCalls.length > 1) {
      return this.#pardon(
        action.text.startsWith('call') ? { role: 'tool', content: RESULT.noCall } : { role: 'user', content: USER.pardon },
      );
    }
    if (call) return this.#call(call.name, call.arguments);
    const closing = CLOSE.exec(action.text);
    if (closing) return this.#end(true, Number(closing[1]));
    const walk = WALK.exec(action.text);
    const request = walk ? 'walk' : RULE.test(action.text) ? 'rule' : ASKED.get(action.text);
    if (!request) return this.#pardon({ role: 'user', content: USER.pardon });
    const outcome = this.#world.user(request, walk ? Number(walk[1]) : 0);
    if (outcome.changed) this.#counts.changes++;
    return this.#goOn({ role: 'user', content: outcome.text });
  }

  #call(name: string, args: Record<string, unknown>): StepResult {
    if (!Object.hasOwn(TOOLS, name)) return this.#pardon({ role: 'tool', content: RESULT.noCall });
    const tool = name as ToolName;
    this.#counts.toolCalls++;
    const outcome = this.#world.tool(tool, args);
    if (!outcome.ok) this.#counts.errors++;
    else if (WRITES.has(tool)) {
      if (outcome.changed) this.#counts.changes++;
      if (!this.#identified) this.#wroteUnidentified = true;
      if (tool === 'flag') this.#flagged = true;
      if (tool === 'refund' && !this.#flagged) this.#refundedUnflagged = true;
      if (tool === 'transfer') return this.#end(true, undefined);
    } else if (tool === 'find_rider' && args.code === this.task.riders[this.task.caller]!.code) this.#identified = true;
    return this.#goOn({ role: 'tool', name, content: outcome.text });
  }

  #pardon(message: Message): StepResult {
    this.#counts.malformed++;
    return this.#goOn(message);
  }

  #goOn(message: Message): StepResult {
    const { turns, errors, malformed } = this.#counts;
    const s = this.#settings;
    if (turns >= s.maxTurns || errors >= s.maxErrors || malformed >= s.maxPardons) return this.#end(false, undefined, message);
    return { observation: [message], reward: 0, terminated: false, truncated: false, info: {} };
  }

  /** `said`: the amount named; undefined for a transfer or a limit. */
  #end(closed: boolean, said: number | undefined, message?: Message): StepResult {
    this.#over = true;
    this.#solution ??= solve(this.task);
    const parts: DeskRewardParts = {
      closed: Number(closed),
      state: Number(this.#world.hash() === this.#solution.hash),
      told: Number(closed && said === this.#solution.told),
      order: Number(!this.#refundedUnflagged),
      identified: Number(!this.#wroteUnidentified),
    };
    const reward = parts.closed * parts.state * parts.told * parts.order * parts.identified;
    return {
      observation: message ? [message] : [],
      reward,
      terminated: closed,
      truncated: !closed,
      info: { rewardParts: { ...parts }, ...this.#counts },
    };
  }
}
