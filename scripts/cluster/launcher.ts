// What brings the agents of a run to its cluster. A launcher knows one place where machines are had; the head, the token and the run itself
// are the same for all.
import type { TrainingConfig } from '../../actors/index.ts';

export type ClusterSettings = TrainingConfig['cluster'];

/** One agent that a launcher brings, as far as it is known before anything is started. */
export interface PlannedAgent {
  /** Name of its node. */
  node: string;
  /** The machine, as people know it. */
  where: string;
  /** On the machine of the head, with its folder. */
  here: boolean;
  /** What it will have for placement; a number that only the machine itself knows is absent. */
  resources: { cpus?: number; gpus?: number };
}

/** Certificate of one host, and who signed all of them. Paths. */
export interface Certificate {
  ca: string;
  cert: string;
  key: string;
}

/** What agents join. */
export interface HeadPlace {
  folder: string;
  tokenFile: string;
  /** Where it listens; undefined: its folder is the only way. */
  url: string | undefined;
  /** Makes the certificate of a host that has these names; undefined: the head listens on loopback, without TLS. */
  certify: ((...names: string[]) => Promise<Certificate>) | undefined;
}

/** Agents that are on their way, or running. */
export interface StartedAgents {
  /** Resolves with what happened when one of them ended by itself. */
  readonly lost: Promise<string>;
  /** Ends what is left of them, after the head has told them to go. */
  stop(): Promise<void>;
}

export interface Launcher {
  /** Where the head listens for these agents; undefined: they are on this machine. */
  readonly headHost: string | undefined;
  /** Agents that it brings at first. */
  plan(): PlannedAgent[];
  start(agents: readonly PlannedAgent[], head: HeadPlace, signal: AbortSignal): Promise<StartedAgents>;
  /** One more, if it can bring more: the i-th of all. */
  more?(i: number): PlannedAgent;
}
