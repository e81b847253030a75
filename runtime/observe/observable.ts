// What the observatory looks at: whoever holds the control state and the workers. Answers from memory, except ask(), which has a deadline.
import type { ActorInfo, Isolation } from '../api/types.ts';
import type { Demand, GroupView, NodeView } from '../control/index.ts';
import type { Silent } from './facts.ts';
import type { Question } from './questions.ts';
import type { StackSample } from './stack-sample.ts';

export interface ObservedWorker {
  /** 0: the driver. */
  worker: number;
  /** `driver`, its actor's name, or `shared-<number>`. */
  name: string;
  isolation: Isolation | 'driver';
  pid: number | undefined;
  /** What its agent's monitor thinks of its event loop. */
  health: ActorInfo['health'];
  /** Numbers of the actors in it. */
  actors: number[];
}

type MaybePromise<T> = T | Promise<T>;

export interface Observable {
  actors(): ActorInfo[];
  /** `silent`: whose workers could not be asked for in time. */
  workers(timeoutMs: number): MaybePromise<{ workers: ObservedWorker[]; silent: Silent[] }>;
  nodes(): NodeView[];
  groups(): GroupView[];
  /** What waits for room. */
  demand(): Demand[];
  /** Why the actor waits for room; undefined: it does not. */
  why(actor: number): string | undefined;
  /** Rejects with SINKFLEX_NO_ANSWER when the worker does not answer in time. */
  ask(worker: number, question: Question, timeoutMs: number): Promise<unknown>;
  /** Where its event loop is. */
  stack(worker: number, timeoutMs: number): Promise<StackSample>;
}
