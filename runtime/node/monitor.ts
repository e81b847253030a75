// The agent's side of its monitor thread: hands out cells for workers to tick, hears of changes of health, and knows why a worker was ended.
import { Worker } from 'node:worker_threads';
import { os, SharedMemory } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { LIVENESS, type TickCell } from '../control/index.ts';
import { entryUrl, type Health, type WorkerEnd } from './carrier.ts';
import type { HeartbeatOrder } from './heartbeat.ts';
import { CELL_BYTES, CELLS, type CellBlock, type FromMonitor, type ToMonitor, verdictKind, type WatchOrder } from './monitor-protocol.ts';
import { needsLoader } from './runtime-env.ts';

/** How often the agent's own loop shows that it turns. */
const TICK_MS = 100;
/** Programs that end sooner than this never have a monitor. */
const START_AFTER_MS = 300;
const MIB = 2 ** 20;

export interface WatchEvents {
  onHealth(health: Health, forMs: number): void;
  /** It is to be ended: `verdict()` will say why. */
  onCondemned(): void;
}

export interface Limits {
  unresponsiveMs: number;
  memory: number;
  memoryGroup: string | undefined;
}

/** One worker under watch. */
export interface Watch {
  /** For its birth. */
  readonly cell: TickCell;
  /** Its carrier runs. */
  began(pid: number | undefined): void;
  setUnresponsiveMs(ms: number): void;
  /** Why the monitor ended it, if it did. */
  verdict(): Pick<WorkerEnd, 'error' | 'outOfMemory'>;
  end(): void;
}

export class Monitor {
  #thread: Worker | undefined;
  #start: NodeJS.Timeout | undefined;
  #closed = false;
  #failures = 0;
  readonly #blocks: (CellBlock & { memory: SharedMemory; numbers: Float64Array; cells: Int32Array })[] = [];
  readonly #free: { block: number; cell: number }[] = [];
  readonly #orders = new Map<number, WatchOrder>();
  readonly #events = new Map<number, WatchEvents>();
  #nextId = 0;
  #heartbeat: HeartbeatOrder | undefined;
  #ticking: NodeJS.Timeout | undefined;

  /** From now on the head hears that this node is there. */
  beat(to: Omit<HeartbeatOrder, 'pid' | 'processStart' | 'everyMs' | 'ticks'>): void {
    const ticks = new SharedArrayBuffer(4);
    const cell = new Int32Array(ticks);
    this.#ticking = setInterval(() => Atomics.add(cell, 0, 1), TICK_MS).unref();
    const processStart = os.processStartTime(process.pid) ?? '';
    this.#heartbeat = { ...to, pid: process.pid, processStart, everyMs: LIVENESS.everyMs, ticks };
    this.#say({ t: 'beat', order: this.#heartbeat });
    this.#startLater(true);
  }

  watch(isThread: boolean, limits: Limits, events: WatchEvents): Watch {
    const id = ++this.#nextId;
    const place = this.#takeCell();
    const { address, numbers, cells } = this.#blocks[place.block]!;
    const order: WatchOrder = { id, ...place, process: undefined, ...limits };
    return {
      cell: { address, offset: place.cell * CELL_BYTES },
      began: (pid) => {
        if (!isThread) {
          const startTime = pid === undefined ? undefined : os.processStartTime(pid);
          if (pid === undefined || startTime === undefined) return;
          order.process = { pid, startTime };
        }
        this.#orders.set(id, order);
        this.#events.set(id, events);
        this.#say({ t: 'watch', order });
        this.#startLater(limits.memory > 0 || limits.unresponsiveMs > 0);
      },
      setUnresponsiveMs: (ms) => {
        order.unresponsiveMs = ms;
        this.#say({ t: 'limit', id, unresponsiveMs: ms });
        this.#startLater(ms > 0);
      },
      verdict: () => describe(numbers[2 * place.cell]!, numbers[2 * place.cell + 1]!, order),
      end: () => {
        if (this.#orders.delete(id)) this.#say({ t: 'forget', id });
        this.#events.delete(id);
        numbers[2 * place.cell] = verdictKind.none;
        cells[(place.cell * CELL_BYTES) / 4] = 0;
        this.#free.push(place);
      },
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#start);
    clearInterval(this.#ticking);
    await this.#thread?.terminate();
    for (const { memory } of this.#blocks.splice(0)) memory.release();
  }

  #takeCell(): { block: number; cell: number } {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const block = this.#blocks.length;
    const memory = SharedMemory.create(CELLS * CELL_BYTES);
    const view = memory.view();
    const verdicts = new SharedArrayBuffer(CELLS * 16);
    const cells = new Int32Array(view.buffer, view.byteOffset, view.byteLength / 4);
    this.#blocks.push({ block, address: memory.address, verdicts, memory, numbers: new Float64Array(verdicts), cells });
    this.#say({ t: 'block', block: { block, address: memory.address, verdicts } });
    for (let cell = CELLS - 1; cell >= 0; cell--) this.#free.push({ block, cell });
    return this.#free.pop()!;
  }

  #say(message: ToMonitor): void {
    this.#thread?.postMessage(message);
  }

  #startLater(now: boolean): void {
    if (this.#thread !== undefined || this.#closed) return;
    if (!now && this.#start !== undefined) return;
    clearTimeout(this.#start);
    if (now) this.#startNow();
    else this.#start = setTimeout(() => this.#startNow(), START_AFTER_MS).unref();
  }

  #startNow(): void {
    if (this.#closed || this.#thread !== undefined) return;
    const blocks: CellBlock[] = this.#blocks.map(({ block, address, verdicts }) => ({ block, address, verdicts }));
    const entry = entryUrl('./monitor-main');
    // Loaders of the program (flags, NODE_OPTIONS) would cost it a second.
    const flags = needsLoader(entry.pathname, '') ? {} : { execArgv: [], env: {} };
    const thread = new Worker(entry, { ...flags, workerData: blocks, name: 'sinkflex-monitor' });
    this.#thread = thread;
    thread.unref();
    thread.on('message', (message: FromMonitor) => {
      const events = this.#events.get(message.id);
      if (message.t === 'health') events?.onHealth(message.health, message.forMs);
      else events?.onCondemned();
    });
    thread.on('error', (error) => process.stderr.write(`[sinkflex] the monitor failed: ${error.stack ?? error.message}\n`));
    thread.on('exit', () => {
      this.#thread = undefined;
      if (!this.#closed && ++this.#failures < 3) this.#startNow();
    });
    if (this.#heartbeat !== undefined) this.#say({ t: 'beat', order: this.#heartbeat });
    for (const order of this.#orders.values()) this.#say({ t: 'watch', order });
  }
}

function describe(kind: number, value: number, { memory, unresponsiveMs }: WatchOrder): Pick<WorkerEnd, 'error' | 'outOfMemory'> {
  if (kind === verdictKind.memory) {
    const used = `${Math.ceil(value / MIB)} MiB`;
    return {
      outOfMemory: true,
      error: new RuntimeFailure('SINKFLEX_OUT_OF_MEMORY', `it used ${used} of memory; its limit is ${Math.floor(memory / MIB)} MiB`, {
        details: { used: value, limit: memory },
      }),
    };
  }
  if (kind === verdictKind.blocked || kind === verdictKind.stopped) {
    const what = kind === verdictKind.blocked ? 'its event loop was blocked' : 'its process was stopped';
    const text = `${what} for ${Math.round(value)} ms; unresponsiveMs allows ${unresponsiveMs}`;
    return { error: new RuntimeFailure('SINKFLEX_ACTOR_UNRESPONSIVE', text, { details: { forMs: value } }) };
  }
  return {};
}
