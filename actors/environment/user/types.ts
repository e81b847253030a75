/** Who speaks with the policy: the seam between an environment and a simulated user. */
import type { MaybePromise, Message, ToolCall, ToolSchema } from '../types.ts';

/** One turn of the user: words for the agent, or calls of the user's own tools; never both. */
export type UserTurn = { text: string; toolCalls?: undefined } | { text?: undefined; toolCalls: ToolCall[] };

/** A call that an agent or user made, with its answer. */
export interface ExecutedCall {
  requestor: 'assistant' | 'user';
  call: ToolCall;
  content: string;
  error: boolean;
  /** Whether the tool is one that may change the world. */
  writes: boolean;
}

export interface UserStart {
  /** uint32: fixes what the user draws. */
  seed: number;
  /** Id of the task in its domain, for users with a script a task. */
  taskId: string;
  domain: string;
  /** What the user is, wants and knows, as the domain writes it; the text form is what a language model gets. */
  scenario: { text: string; fields: Record<string, unknown> };
  /** How a language model is to play a user, in the benchmark's words; absent where its data have none. */
  guidelines?: string | undefined;
  /** The user's own tools; empty where it only talks. */
  tools: ToolSchema[];
  /** Conversation so far, where a task begins in the middle. */
  history: readonly Message[];
  /** Every call of the episode so far, growing; for scripted users that watch what is written. A model must not be shown it. */
  calls: readonly ExecutedCall[];
  /** What fulfils the task, for scripted users, which refuse what contradicts it; reckoned when asked for. A model must not be shown it. */
  reference?(): UserReference;
}

export interface UserReference {
  /** The agent's calls that change the world, in order; not all of them succeed in every task. */
  writes: { name: string; arguments: Record<string, unknown>; works: boolean }[];
  /** What the user has to hear, as the evaluator looks for it. */
  told: readonly string[];
}

/**
 * One object is the user of one episode at a time. A failure of the user (an endpoint that is down) rejects: it is never the agent's fault.
 * What ends the conversation is the domain's: tau2 takes `###STOP###`, `###TRANSFER###` and `###OUT-OF-SCOPE###` in the text.
 */
export interface UserSimulator {
  /** For every result: `scripted`, `model:<name>`, ... */
  readonly kind: string;
  start(o: UserStart): MaybePromise<void>;
  /** The answer to what arrived since the user's last turn: the agent's words (role `assistant`), or its own tools' answers (`tool`). */
  reply(incoming: readonly Message[]): MaybePromise<UserTurn>;
  close(): MaybePromise<void>;
}

/** Makes the users of an environment; `options` are the environment's own, for settings such as an endpoint. */
export type UserFactory = (options: Record<string, unknown>) => UserSimulator;

/** What else there is to say of a kind of user. */
export interface UserTraits {
  /** Why there is no such user for a task; undefined where there is one. Tasks without are left out of a split. */
  refuses?(domain: string, taskId: string, options: Record<string, unknown>): string | undefined;
}
