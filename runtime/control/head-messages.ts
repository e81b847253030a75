// What the head and its peers (the agents of nodes, and drivers) tell each other: plain calls when all live in one process, frames on a
// local socket otherwise. Every message may be delivered twice, or again after a reconnection; the second time changes nothing.
import type { Health } from '../api/types.ts';
import type { ErrorData } from '../wire/index.ts';
import type { ActorSpec, Ask, EncodedValue, Place, StopMode } from './messages.ts';

/** How an incarnation ended, as its agent saw it. Whether somebody wanted that is the head's knowledge. */
export interface EndData {
  exitCode?: number;
  signal?: string;
  lastStderr: string[];
  /** The constructor or start() threw. */
  constructorFailed: boolean;
  cause?: ErrorData;
  outOfMemory?: boolean;
}

export type ToHead =
  | { t: 'spawn'; spec: ActorSpec }
  /** Wants to hear where the actor is, now and at every change. */
  | { t: 'resolve'; actor: number }
  | { t: 'kill'; actor: number; restart: boolean; drain: boolean; graceMs: number; worker: number; request: number }
  | { t: 'ask'; worker: number; request: number; ask: Ask }
  | { t: 'hosted'; actor: number; incarnation: number; worker: number; pid: number | undefined }
  | { t: 'started'; actor: number; incarnation: number }
  | { t: 'health'; actor: number; incarnation: number; health: Health }
  /** What checkpoint() answered: kept for the next incarnation's restore(). */
  | { t: 'checkpoint'; actor: number; incarnation: number; state: EncodedValue }
  | { t: 'died'; actor: number; incarnation: number; end: EndData };

export type FromHead =
  | { t: 'spawned'; actor: number }
  | { t: 'place'; place: Place }
  | { t: 'killed'; worker: number; request: number }
  | { t: 'answer'; worker: number; request: number; value?: unknown; error?: ErrorData }
  | { t: 'start'; spec: ActorSpec; incarnation: number; checkpoint?: EncodedValue }
  | { t: 'stop'; actor: number; incarnation: number; graceMs: number; mode: StopMode };

/** The way to the head. */
export interface HeadLink {
  send(message: ToHead): void;
}

/** The way from the head to one of its peers. */
export interface PeerLink {
  send(message: FromHead): void;
}
