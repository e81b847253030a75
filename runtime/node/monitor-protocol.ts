// What the agent and its monitor thread tell each other.
import type { SharedMemoryAddress } from '../../kernels/host.ts';
import type { Health } from './carrier.ts';
import type { HeartbeatOrder } from './heartbeat.ts';

/** Bytes between the cells of two workers: a cache line, so that ticks of one do not slow the other. */
export const CELL_BYTES = 64;
export const CELLS = 1024;

/** Why the monitor ended a worker. Written before the kill, so that it is there when the end is noticed. */
export const verdictKind = { none: 0, memory: 1, blocked: 2, stopped: 3 } as const;

export interface CellBlock {
  block: number;
  address: SharedMemoryAddress;
  /** Two numbers for each cell: kind of the verdict, and bytes or milliseconds. */
  verdicts: SharedArrayBuffer;
}

export interface WatchOrder {
  id: number;
  block: number;
  cell: number;
  /** undefined: a thread of this process. */
  process: { pid: number; startTime: string } | undefined;
  unresponsiveMs: number;
  /** Bytes; 0: no limit. */
  memory: number;
  /** Folder of its memory control group, if it has one. */
  memoryGroup: string | undefined;
}

export type ToMonitor =
  /** Say to the head from now on that this node is there. */
  | { t: 'beat'; order: HeartbeatOrder }
  | { t: 'block'; block: CellBlock }
  | { t: 'watch'; order: WatchOrder }
  | { t: 'limit'; id: number; unresponsiveMs: number }
  | { t: 'forget'; id: number };

export type FromMonitor =
  | { t: 'health'; id: number; health: Health; forMs: number }
  /** A verdict stands; a thread can only be ended by the agent itself. */
  | { t: 'end'; id: number };
