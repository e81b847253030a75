// What can go wrong, as data: for each scenario what is done to the cluster of the job (job.ts), and how the job must end.
import type { FaultInput } from '../../runtime/index.ts';

export interface Scenario {
  name: string;
  faults?: FaultInput[];
  /** Done to the network of a host from outside, with nftables or ip: needs root. */
  network?: { atMs: number; forMs: number; host: 'home' | 'east' | 'west'; what: NetworkFault }[];
  /** The head's folder is a file system of so many bytes: needs root. */
  diskBytes?: number;
  /** A head that ends is started again, unless it is 'never'. */
  headBackMs?: number | 'never';
  maxRestarts?: number;
  ballast?: number;
  soft?: boolean;
  timeoutMs?: number;
  /** The code of the error that the job must end with; default: it ends well. */
  error?: string | RegExp;
  /** No process is lost: every item is done once. */
  once?: boolean;
  /** No call may take longer: its worker answers by then, wherever it is. */
  answersMs?: number;
  withinMs: number;
}

/** Between that host and all others. */
export type NetworkFault = 'drop' | 'reset' | 'lose' | 'in only' | 'out only' | 'rate' | 'large packets' | 'link down' | 'drop west';

const QUICK = 30_000;
const SLOW = 45_000;
const east = { node: 'east' };
const west = { node: 'west' };
const head = { head: true } as const;
const worker = { actor: 'grinder-*' };
const spoiled = (name: string, how: Partial<FaultInput & { fault: 'links' }>): Scenario => ({
  name,
  faults: [{ fault: 'links', target: east, at: 100, for: 2000, ...how } as FaultInput],
  once: true,
  withinMs: QUICK,
});

export const scenarios: readonly Scenario[] = [
  { name: 'nothing goes wrong', once: true, withinMs: QUICK },

  // Workers
  { name: 'a worker is killed', faults: [{ fault: 'kill', target: worker, step: 2 }], answersMs: 5000, withinMs: QUICK },
  {
    name: 'a worker is killed every now and then',
    faults: [{ fault: 'kill', target: worker, everyStep: true, probability: 0.8, times: 4 }],
    withinMs: QUICK,
  },
  { name: 'all workers are killed at once', faults: [{ fault: 'kill', target: { ...worker, all: true }, step: 2 }], withinMs: QUICK },
  { name: 'a worker is stopped for a while', faults: [{ fault: 'stop', target: worker, at: 100, for: 1500 }], once: true, withinMs: QUICK },
  { name: 'a worker is slow', faults: [{ fault: 'slow', target: worker, at: 100, for: 2000 }], once: true, withinMs: QUICK },
  { name: 'a worker is restarted in peace', faults: [{ fault: 'restart', target: worker, step: 2 }], withinMs: QUICK },
  {
    name: 'a worker without restarts is killed',
    faults: [{ fault: 'kill', target: worker, step: 2 }],
    maxRestarts: 0,
    error: 'SINKFLEX_ACTOR_DIED',
    withinMs: QUICK,
  },
  {
    name: 'a worker is killed more often than it may restart',
    faults: [{ fault: 'kill', target: { actor: 'grinder-1' }, every: 300, times: 30 }],
    maxRestarts: 2,
    error: /^SINKFLEX_ACTOR_(DIED|FAILED)$/,
    withinMs: QUICK,
  },
  {
    name: 'the book is killed: nobody restarts it',
    faults: [{ fault: 'kill', target: { actor: 'book' }, step: 2 }],
    error: 'SINKFLEX_ACTOR_DIED',
    withinMs: QUICK,
  },

  // Agents
  { name: 'an agent is killed', faults: [{ fault: 'kill', target: east, step: 2 }], answersMs: 5000, withinMs: QUICK },
  {
    name: 'two agents are killed at once',
    faults: [
      { fault: 'kill', target: east, step: 2 },
      { fault: 'kill', target: west, step: 2 },
    ],
    answersMs: 5000,
    withinMs: QUICK,
  },
  {
    name: 'an agent is killed, and its actors may go nowhere else',
    faults: [{ fault: 'kill', target: east, step: 2 }],
    soft: false,
    timeoutMs: 4000,
    error: 'SINKFLEX_CALL_TIMEOUT',
    withinMs: QUICK,
  },
  { name: 'an agent is stopped for a moment', faults: [{ fault: 'stop', target: east, at: 100, for: 4000 }], once: true, withinMs: QUICK },
  {
    name: 'an agent is stopped for longer than its lease',
    faults: [{ fault: 'stop', target: east, at: 100, for: 14_000 }],
    answersMs: 12_000,
    withinMs: SLOW,
  },
  { name: 'an agent is slow', faults: [{ fault: 'slow', target: east, at: 100, for: 3000 }], once: true, withinMs: QUICK },

  // The head
  { name: 'the head is killed', faults: [{ fault: 'kill', target: head, step: 2 }], once: true, withinMs: QUICK },
  { name: 'the head is killed three times', faults: [{ fault: 'kill', target: head, every: 1500, times: 3 }], once: true, withinMs: QUICK },
  {
    name: 'the head is away for some seconds',
    faults: [{ fault: 'kill', target: head, step: 2 }],
    headBackMs: 2000,
    once: true,
    withinMs: QUICK,
  },
  { name: 'the head is stopped for a moment', faults: [{ fault: 'stop', target: head, at: 100, for: 4000 }], once: true, withinMs: QUICK },
  {
    name: 'the head is stopped for longer than the leases',
    faults: [{ fault: 'stop', target: head, at: 100, for: 12_000 }],
    withinMs: SLOW,
  },
  { name: 'the head is slow', faults: [{ fault: 'slow', target: head, at: 100, for: 3000, runs: 0.1 }], once: true, withinMs: QUICK },
  {
    name: 'the head and an agent are killed at once',
    faults: [
      { fault: 'kill', target: east, at: 100 },
      { fault: 'kill', target: head, at: 400 },
    ],
    withinMs: SLOW,
  },
  {
    name: 'the head and a worker are killed at once',
    faults: [
      { fault: 'kill', target: worker, at: 100 },
      { fault: 'kill', target: head, at: 400 },
    ],
    withinMs: QUICK,
  },
  {
    name: 'the disk of the head is full',
    faults: [
      { fault: 'fill-disk', target: head, folder: 'HEAD', most: 2 ** 25, at: 100, for: 1500 },
      { fault: 'kill', target: worker, at: 300 },
    ],
    diskBytes: 2 ** 24,
    withinMs: QUICK,
  },

  // Messages on links
  spoiled('some messages are lost', { drop: 0.02 }),
  spoiled('many messages are lost', { drop: 0.2 }),
  spoiled('messages come twice', { duplicate: 0.2 }),
  spoiled('messages are overtaken', { reorder: 0.1 }),
  spoiled('bits are flipped', { corrupt: 0.05 }),
  spoiled('messages are late, each by another time', { delay: 20, jitter: 40 }),
  { ...spoiled('little goes through', { bytesPerSecond: 400_000, for: 3000 }), ballast: 20_000 },
  spoiled('all of that together', { drop: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.02, delay: 5, jitter: 20 }),
  { ...spoiled('large values, and bits are flipped', { corrupt: 0.05, drop: 0.02 }), ballast: 300_000 },
  spoiled('bits are flipped on the way to the head', { peer: head, corrupt: 0.2 }),
  spoiled('messages to and from the head are lost', { peer: head, drop: 0.2 }),
  {
    ...spoiled("a driver's messages are lost, doubled and changed", { drop: 0.02, duplicate: 0.05, corrupt: 0.02 }),
    faults: [{ fault: 'links', target: { driver: true }, at: 100, for: 2000, drop: 0.02, duplicate: 0.05, corrupt: 0.02 }],
  },

  // Requests and answers, as Ray counts them
  spoiled('requests to the head are lost', { peer: head, requestLost: 0.3 }),
  spoiled('answers of the head are lost', { peer: head, replyLost: 0.3 }),
  spoiled('connections to the head break behind a request', { peer: head, brokenBehind: 0.3 }),
  spoiled('calls to other hosts are lost', { peer: { node: 'home' }, requestLost: 0.05 }),
  spoiled('answers of other hosts are lost', { peer: { node: 'home' }, replyLost: 0.05 }),
  spoiled('connections break while a call runs', { peer: { node: 'home' }, brokenBehind: 0.05 }),
  {
    name: "a driver's requests and answers are lost while workers are killed",
    faults: [
      { fault: 'links', target: { driver: true }, at: 0, for: 2500, requestLost: 0.05, replyLost: 0.05, brokenBehind: 0.05 },
      { fault: 'kill', target: worker, every: 500, times: 3 },
    ],
    withinMs: QUICK,
  },

  // Cut off
  {
    name: 'two hosts are cut off from each other for a moment',
    faults: [{ fault: 'partition', target: east, peer: { node: 'home' }, at: 100, for: 5000 }],
    once: true,
    withinMs: QUICK,
  },
  {
    name: 'a host is cut off for a moment',
    faults: [{ fault: 'partition', target: east, at: 100, for: 5000 }],
    once: true,
    withinMs: QUICK,
  },
  {
    name: 'a host is cut off for good',
    faults: [{ fault: 'partition', target: east, at: 100, for: 14_000 }],
    answersMs: 12_000,
    withinMs: SLOW,
  },
  { name: 'a host does not hear', faults: [{ fault: 'partition', target: east, direction: 'in', at: 100, for: 14_000 }], withinMs: SLOW },
  { name: 'a host is not heard', faults: [{ fault: 'partition', target: east, direction: 'out', at: 100, for: 14_000 }], withinMs: SLOW },
  {
    name: 'a host is cut off from the head only',
    faults: [{ fault: 'partition', target: east, peer: head, at: 100, for: 5000 }],
    once: true,
    withinMs: QUICK,
  },
  {
    name: 'the driver is cut off for a moment',
    faults: [{ fault: 'partition', target: { driver: true }, at: 100, for: 5000 }],
    once: true,
    withinMs: QUICK,
  },

  // Hosts that are network namespaces
  {
    name: 'packets between two hosts are dropped',
    network: [{ atMs: 100, forMs: 5000, host: 'east', what: 'drop west' }],
    once: true,
    withinMs: QUICK,
  },
  {
    name: 'all packets of a host are dropped for a moment',
    network: [{ atMs: 100, forMs: 5000, host: 'east', what: 'drop' }],
    once: true,
    withinMs: QUICK,
  },
  {
    name: 'all packets of a host are dropped for good',
    network: [{ atMs: 100, forMs: 14_000, host: 'east', what: 'drop' }],
    answersMs: 12_000,
    withinMs: SLOW,
  },
  { name: 'the connections of a host are reset', network: [{ atMs: 100, forMs: 3000, host: 'east', what: 'reset' }], withinMs: QUICK },
  { name: 'a fifth of the packets of a host is lost', network: [{ atMs: 100, forMs: 4000, host: 'east', what: 'lose' }], withinMs: SLOW },
  { name: 'a host hears and is not heard', network: [{ atMs: 100, forMs: 14_000, host: 'east', what: 'in only' }], withinMs: SLOW },
  { name: 'a host is heard and does not hear', network: [{ atMs: 100, forMs: 14_000, host: 'east', what: 'out only' }], withinMs: SLOW },
  {
    name: 'a host has little bandwidth',
    network: [{ atMs: 100, forMs: 4000, host: 'east', what: 'rate' }],
    ballast: 20_000,
    withinMs: SLOW,
  },
  {
    name: 'large packets of a host get lost',
    network: [{ atMs: 100, forMs: 5000, host: 'east', what: 'large packets' }],
    ballast: 20_000,
    withinMs: SLOW,
  },
  {
    name: 'the cable of a host is pulled',
    network: [{ atMs: 100, forMs: 5000, host: 'east', what: 'link down' }],
    once: true,
    withinMs: QUICK,
  },
];
