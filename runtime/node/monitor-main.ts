// The agent's monitor: a thread of its own, so that it sees what goes on while the agent's loop is busy. Reads every worker's tick, its
// state in /proc and its memory a few times a second; tells of changes, and ends those that are over a limit.
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { parentPort, workerData } from 'node:worker_threads';
import { os, SharedMemory } from '../../kernels/host.ts';
import type { Health } from './carrier.ts';
import { BLOCKED_AFTER_MS, HealthJudge } from './health.ts';
import { anonymousBytes, groupBytes } from './memory-limit.ts';
import { CELL_BYTES, type CellBlock, type FromMonitor, type ToMonitor, verdictKind, type WatchOrder } from './monitor-protocol.ts';

const PERIOD_MS = 200;
/** With memory limits to watch: a process can take a gigabyte in less than half a second. */
const MEMORY_PERIOD_MS = 50;
/** Ticks come ten times a second and are read five times: less patience than this would end the healthy. */
const LEAST_PATIENCE_MS = 400;

const port = parentPort!;
const blocks = new Map<number, { cells: Int32Array; verdicts: Float64Array; memory: SharedMemory }>();

class Watched {
  readonly order: WatchOrder;
  health: Health = 'ok';
  condemned = false;
  readonly judge: HealthJudge;
  /** Infinity: it is never ended for that. */
  readonly patienceMs: number;

  constructor(order: WatchOrder) {
    this.order = order;
    this.patienceMs = order.unresponsiveMs > 0 ? Math.max(order.unresponsiveMs, LEAST_PATIENCE_MS) : Number.POSITIVE_INFINITY;
    this.judge = new HealthJudge(Math.min(this.patienceMs, BLOCKED_AFTER_MS));
  }
}
const watched = new Map<number, Watched>();

/** /proc/<pid>/stat: state, and user and system time in ticks of 10 ms. undefined: gone. */
function sampleProcess(pid: number): { state: string; cpuMs: number } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0]!, cpuMs: (Number(fields[11]) + Number(fields[12])) * 10 };
  } catch {
    return undefined;
  }
}

function say(message: FromMonitor): void {
  port.postMessage(message);
}

function condemn(one: Watched, kind: number, value: number): void {
  const { id, block, cell, process: target } = one.order;
  one.condemned = true;
  const { verdicts } = blocks.get(block)!;
  verdicts[2 * cell + 1] = value;
  verdicts[2 * cell] = kind;
  say({ t: 'end', id });
  if (target === undefined || os.processStartTime(target.pid) !== target.startTime) return;
  for (const pid of [-target.pid, target.pid]) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has gone, or has no group of its own yet.
    }
  }
}

function look(one: Watched, now: number): void {
  const { id, block, cell, process: target } = one.order;
  const sample = target === undefined ? undefined : sampleProcess(target.pid);
  if (target !== undefined && (sample === undefined || sample.state === 'Z')) return; // its end is told by others
  const tick = Atomics.load(blocks.get(block)!.cells, (cell * CELL_BYTES) / 4);
  const { health, forMs } = one.judge.judge({ now, tick, ...(sample === undefined ? {} : { process: sample }) }, PERIOD_MS);
  if (health !== one.health) {
    one.health = health;
    say({ t: 'health', id, health, forMs });
  }
  if (health !== 'ok' && forMs >= one.patienceMs) condemn(one, verdictKind[health], forMs);
}

function weigh(one: Watched): void {
  const { process: target, memory, memoryGroup } = one.order;
  if (target === undefined || memory === 0) return;
  const bytes = (memoryGroup === undefined ? undefined : groupBytes(memoryGroup)) ?? anonymousBytes(target.pid);
  if (bytes !== undefined && bytes > memory) condemn(one, verdictKind.memory, bytes);
}

let due = 0;
let limits = false;
let timer: NodeJS.Timeout | undefined;

function round(): void {
  const now = performance.now();
  if (now >= due) {
    due = now + PERIOD_MS * 0.9;
    for (const one of watched.values()) if (!one.condemned) look(one, now);
  }
  if (limits) for (const one of watched.values()) if (!one.condemned) weigh(one);
}

function pace(): void {
  const wanted = [...watched.values()].some(({ order }) => order.memory > 0);
  if (timer !== undefined && wanted === limits) return;
  limits = wanted;
  clearInterval(timer);
  timer = setInterval(round, limits ? MEMORY_PERIOD_MS : PERIOD_MS);
}

port.on('message', (message: ToMonitor) => {
  switch (message.t) {
    case 'beat':
      // Only nodes of a cluster need what it takes to reach the head.
      void import('./heartbeat.ts').then(({ startHeartbeat }) => startHeartbeat(message.order));
      return;
    case 'block':
      openBlock(message.block);
      return;
    case 'watch':
      watched.set(message.order.id, new Watched(message.order));
      pace();
      return;
    case 'limit': {
      const one = watched.get(message.id);
      if (one !== undefined) watched.set(message.id, new Watched({ ...one.order, unresponsiveMs: message.unresponsiveMs }));
      return;
    }
    case 'forget':
      watched.delete(message.id);
      pace();
      return;
  }
});

function openBlock({ block, address, verdicts }: CellBlock): void {
  const memory = SharedMemory.open(address);
  const view = memory.view();
  blocks.set(block, { memory, cells: new Int32Array(view.buffer, view.byteOffset), verdicts: new Float64Array(verdicts) });
}

for (const block of workerData as CellBlock[]) openBlock(block);
pace();
