// What the head and its peers (the agents of nodes, and drivers) tell each other: plain calls when all live in one process, frames on a
// local socket otherwise. Every message may be delivered twice, or again after a reconnection; the second time changes nothing.
import type { ActorInfo, Health } from '../api/types.ts';
import type { AgentQuestion, Question } from '../observe/questions.ts';
import type { ErrorData } from '../wire/index.ts';
import type { GroupId, NodeId, PlacedBundle } from './cluster-types.ts';
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

/** An incarnation that runs on a node. */
export interface Hosted {
  actor: number;
  incarnation: number;
  worker: number;
  pid: number | undefined;
  /** Its constructor and start() have returned. */
  started: boolean;
}

/** The end of an incarnation; repeated until the head has heard it. */
export interface Died {
  t: 'died';
  actor: number;
  incarnation: number;
  end: EndData;
}

/** A process with a way to the workers of its host, as others find it. */
export interface HostInfo {
  host: string;
  /** Where it listens; absent: it goes to others. */
  url?: string;
  /** Numbers of workers that were given to it, from first to last. */
  numbers: [first: number, last: number][];
}

/** An agent is there, for the first time or again. */
export interface Join {
  t: 'join';
  node: NodeId;
  pid: number;
  /** Start time of that process: pids are used again. */
  processStart: string;
  total: Record<string, number>;
  labels: Record<string, string>;
  /** It has no numbers for workers yet. */
  needsNumbers: boolean;
  hosted: Hosted[];
  /** Ends that the head has not acknowledged. */
  ended: Died[];
  /** What it holds of placement groups. */
  bundles: { group: GroupId; attempt: number; bundle: number }[];
  /** Absent: it has no way to other hosts. */
  host?: HostInfo;
}

export type ToHead =
  | Join
  /** A driver is there, for the first time or again. `driver`: its own id. */
  | { t: 'attach'; driver: string; pid: number; processStart: string; host?: HostInfo }
  /** More numbers for workers. */
  | { t: 'numbers' }
  /** Wants to hear of every change of every actor. */
  | { t: 'watch' }
  | { t: 'spawn'; spec: ActorSpec }
  /** Wants to hear where the actor is, now and at every change. */
  | { t: 'resolve'; actor: number }
  /** Known by worker and request: carried out once. */
  | { t: 'kill'; actor: number; restart: boolean; drain: boolean; graceMs: number; worker: number; request: number }
  | { t: 'ask'; worker: number; request: number; ask: Ask }
  | ({ t: 'hosted' } & Hosted)
  | { t: 'started'; actor: number; incarnation: number }
  /** What checkpoint() answered: kept for the next incarnation's restore(). */
  | { t: 'checkpoint'; actor: number; incarnation: number; state: EncodedValue }
  | Died
  | { t: 'health'; actor: number; incarnation: number; health: Health }
  | { t: 'prepared'; group: GroupId; attempt: number; ok: boolean }
  /** The node is going away: nothing more is to be placed there, and what can move is to move within graceMs. */
  | { t: 'draining'; graceMs: number }
  /** The sign of life of a node, over a connection of its own. `blockedMs`: for how long its agent's loop has not turned. */
  | { t: 'beat'; node: NodeId; pid: number; processStart: string; blockedMs: number }
  /** What was asked with 'query'. */
  | { t: 'reply'; worker: number; request: number; answer?: unknown; error?: ErrorData }
  /** The agent ends now, with all that it runs. */
  | { t: 'leaving' };

export type FromHead =
  | { t: 'attached'; worker: number }
  /** Numbers for workers, from first to last. */
  | { t: 'numbers'; first: number; last: number }
  | { t: 'spawned'; actor: number }
  | { t: 'place'; place: Place }
  | { t: 'killed'; worker: number; request: number }
  | { t: 'answer'; worker: number; request: number; value?: unknown; error?: ErrorData }
  /** To those who watch. */
  | { t: 'info'; info: ActorInfo }
  | { t: 'start'; spec: ActorSpec; incarnation: number; gpus: number[]; checkpoint?: EncodedValue }
  | { t: 'stop'; actor: number; incarnation: number; graceMs: number; mode: StopMode }
  /** The end of that incarnation is known (and on disk, where there is a journal). */
  | { t: 'heard'; actor: number; incarnation: number }
  | { t: 'prepare'; group: GroupId; attempt: number; bundles: PlacedBundle[] }
  | { t: 'commit'; group: GroupId; attempt: number; bundles: number[] }
  | { t: 'release'; group: GroupId; attempt: number; bundles: number[] }
  /** Drain yourself, as if the node had been told to go away. */
  | { t: 'drain'; graceMs: number }
  /** Somebody looks: at that worker of the peer, or (-1) at the agent itself. */
  | { t: 'query'; worker: number; request: number; question: Question | AgentQuestion; timeoutMs: number }
  /** A host that cannot be gone to wants a link: go to it. */
  | { t: 'dial'; host: string; url: string }
  /** Nobody is there any more. */
  | { t: 'host-gone'; host: string }
  /** The cluster ends. */
  | { t: 'shutdown' };

/** What concerns a peer's own workers; the rest is for agents. */
export type ToWorkers = Extract<FromHead, { t: 'spawned' | 'place' | 'killed' | 'answer' }>;

/** The way to the head. */
export interface HeadLink {
  send(message: ToHead): void;
  /** Over another connection: nothing that was said on this one is heard any more. Absent where there is no connection. */
  reconnect?(): void;
}

/** The way from the head to one of its peers. */
export interface PeerLink {
  /** On another host: its pids mean nothing here. */
  readonly remote?: boolean;
  /** Ends the connection: it has been given up. */
  close?(): void;
  send(message: FromHead): void;
}
