/** The environment interface: what a domain implements, and what a rollout sees of it. Plain data, no tokens. */

import type { TaskRow } from '../tasks/types.ts';

export type MaybePromise<T> = T | Promise<T>;

export type Role = 'system' | 'user' | 'assistant' | 'tool';

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
  /** The arguments as they were written, where plain data lose something of it: 5.0 is not 5 to every tool. */
  argumentsText?: string;
  /** As a server's API named it; answers repeat it. */
  id?: string;
}

/** A tool for the prompt: a function as OpenAI's API and chat templates write it. */
export interface ToolSchema {
  type: 'function';
  function: {
    name: string;
    description: string;
    /** JSON schema of the arguments. */
    parameters: Record<string, unknown>;
  };
}

export interface Message {
  role: Role;
  content: string;
  toolCalls?: ToolCall[];
  /** Who speaks, where a role has several speakers (the tool that answered). */
  name?: string;
  /** `id` of the call that a tool's message answers. */
  toolCallId?: string;
}

/** One turn of the policy, as its chat format reads it. */
export interface Action {
  /** What the policy wrote, without its end-of-turn token. */
  text: string;
  toolCalls: ToolCall[];
  /** The policy declared the episode over. */
  finish: boolean;
  /** Why the parser could not read the turn; the environment answers with an observation, never with an exception. */
  malformed?: string;
}

export interface ResetOptions {
  /** uint32: fixes the task completely. */
  seed: number;
  options?: Record<string, unknown>;
}

export interface ResetResult {
  observation: Message[];
  /** What the policy may call, for the prompt; absent where the observation itself says it. */
  tools?: ToolSchema[];
  info: Record<string, unknown>;
}

export interface StepResult {
  observation: Message[];
  /** Of this step; the episode's score is the sum. */
  reward: number;
  /** The task came to an end of its own. */
  terminated: boolean;
  /** A limit (turns, errors) ended it. */
  truncated: boolean;
  /** Serialisable. At the end it carries `rewardParts`: named factors or terms of the score. */
  info: Record<string, unknown>;
}

/** The Gymnasium shape, with messages: one object is one episode at a time. */
export interface Environment {
  reset(o: ResetOptions): MaybePromise<ResetResult>;
  step(action: Action): MaybePromise<StepResult>;
  close(): MaybePromise<void>;
}

/** Reads one turn of the policy. Pure and total: what cannot be read comes back as `malformed`. */
export type ActionParser = (text: string) => Action;

/** How messages become tokens and back: the files of a Hugging Face tokenizer folder, and a parser. */
export interface ChatFormat {
  /** Content of tokenizer.json. */
  tokenizer: Record<string, unknown>;
  /** Content of tokenizer_config.json, its `chat_template` included. */
  tokenizerConfig: Record<string, unknown>;
  parse: ActionParser;
}

/** An episode written down: what a scripted expert did in one task, and what came of it. */
export interface Demonstration {
  messages: Message[];
  /** Score of the episode. */
  reward: number;
  /** reward === 1 */
  solved: boolean;
  rewardParts: Record<string, number>;
  turns: number;
}

export interface DemonstrateOptions {
  /** 0: a perfect expert. 1: the domain's default rate of mistakes. */
  noise?: number;
  options?: Record<string, unknown>;
}

export interface EnvironmentEntry {
  name: string;
  /** One line for listings. */
  summary: string;
  /** Throws SINKFLEX_ENVIRONMENT_OPTION for options that it does not take. */
  create(options?: Record<string, unknown>): Environment;
  /** Asked once before a run starts anything: throws where its episodes could only fail on this machine. */
  prepare?(options?: Record<string, unknown>): Promise<void>;
  /** Reads a row of a task file (data.train_files): throws an Error that says what is wrong with it. Without it a row has seed, options and level. */
  readTask?(row: Record<string, unknown>): TaskRow;
  /** Where the held-out tasks are a given set: validation seeds that stand for each of them once, in order. Drawn by seed otherwise. */
  validationSeeds?(options?: Record<string, unknown>): number[];
  /** Other tasks that its policies are scored on at the end of a run, never trained on: validation seeds that stand for them, in order. */
  alsoScored?(options?: Record<string, unknown>): { name: string; seeds: number[] }[];
  /** What has to be said beside every score: version of the tasks, basis, user, what doing nothing scores. */
  labels?(options?: Record<string, unknown>): Record<string, string>;
  /** Tokenizer, chat template and parser that were made for it; without one it takes those of the model's folder. */
  chat?: ChatFormat;
  /** A scripted expert that errs as a weak policy would; the material of the warm start. */
  demonstrate?(seed: number, noiseSeed: number, o?: DemonstrateOptions): Demonstration;
  /** Fixed policies, each a score for one task: what a score must beat to mean anything. */
  baselines?: Record<string, (seed: number, options?: Record<string, unknown>) => number>;
}
