// Worker processes. The only file that forks, always from the main thread (a death signal follows the thread that forked). A process
// starts as a spare that belongs to nobody; adopting it tells it whose it is.
import cluster, { type ClusterSettings, type Worker } from 'node:cluster';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { RuntimeFailure } from '../api/errors.ts';
import type { FromAgent, RehearseMessage, ToAgent } from '../control/index.ts';
import { type Adoption, type CarrierEvents, entryUrl, type Spare, STDERR_GRACE_MS, type WorkerCarrier, type WorkerEnd } from './carrier.ts';
import type { Janitor } from './janitor.ts';
import { OutputLines } from './output.ts';

/** What V8 writes before it aborts. */
const HEAP_FULL = 'JavaScript heap out of memory';

export const processEntry = fileURLToPath(entryUrl('../worker/process-main'));
const spareEntry = fileURLToPath(entryUrl('../worker/spare-main'));

export interface ProcessStart {
  label: string;
  flags: string[];
  /** On top of this process's environment. */
  env: Record<string, string>;
  cwd: string | undefined;
  /** Nobody waits for it. */
  spare: boolean;
}

export function startProcess(start: ProcessStart, janitor: Janitor): Spare {
  if (!isMainThread) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'worker processes are forked from the main thread only');
  cluster.setupPrimary({
    exec: start.spare ? spareEntry : processEntry,
    args: [start.label],
    execArgv: start.flags,
    cwd: start.cwd,
    serialization: 'advanced',
    silent: true,
  } as ClusterSettings);
  return new ProcessWorker(cluster.fork(start.env), janitor);
}

class ProcessWorker implements Spare, WorkerCarrier {
  readonly pid: number | undefined;
  ready = false;
  onReady: (() => void) | undefined;
  onGone: (() => void) | undefined;
  readonly #worker: Worker;
  readonly #janitor: Janitor;
  #stderr: OutputLines | undefined;
  #events: CarrierEvents | undefined;
  /** What it writes before it belongs to anybody. */
  #lines: ['stdout' | 'stderr', string][] = [];
  /** A worker whose modules are still loading loses messages (seen with Node 20): it says when it listens. */
  #early: unknown[] = [];
  #exit: Omit<WorkerEnd, 'lastStderr'> | undefined;
  #over = false;
  /** The line that says so; V8 writes more lines after it than are kept. */
  #heapFull: string | undefined;

  constructor(worker: Worker, janitor: Janitor) {
    this.#worker = worker;
    this.#janitor = janitor;
    const child = worker.process;
    worker.on('error', (error: Error) => {
      // Not started at all, or a message that could not be sent to a process that is going.
      if (this.pid !== undefined) return;
      this.#exit ??= { exitCode: -1, error };
      this.#settled();
      this.#report(true);
    });
    this.pid = child.pid;
    if (this.pid !== undefined) janitor.add(this.pid);
    const line = (stream: 'stdout' | 'stderr') => (text: string) => {
      if (stream === 'stderr' && text.includes(HEAP_FULL)) this.#heapFull = text;
      if (this.#events === undefined) this.#lines.push([stream, text]);
      else this.#events.onLine(stream, text);
    };
    // Without descriptors or processes left it has no pipes either.
    if (child.stderr && child.stdout) {
      this.#stderr = new OutputLines(child.stderr, line('stderr'), () => this.#report());
      new OutputLines(child.stdout, line('stdout'), () => {});
    }
    child.once('exit', (code, signal) => this.#ended(code, signal));
    worker.on('message', (message: ToAgent) => {
      if (message.t !== 'ready') this.#events?.onMessage(message);
      else {
        this.ready = true;
        for (const each of this.#early.splice(0)) this.#say(each);
        this.#settled();
      }
    });
  }

  rehearse(folder: string): void {
    this.#post({ t: 'rehearse', folder } satisfies RehearseMessage);
  }

  adopt({ birth, label, environment }: Adoption, events: CarrierEvents): WorkerCarrier {
    this.#events = events;
    for (const [stream, text] of this.#lines.splice(0)) events.onLine(stream, text);
    this.#post({ t: 'birth', birth, label, environment });
    if (this.#over) setImmediate(() => events.onEnd({ ...this.#exit, lastStderr: this.#stderr?.last ?? [] }));
    return this;
  }

  send(message: FromAgent): void {
    this.#post(message);
  }

  destroy(): void {
    this.#worker.process.kill('SIGKILL');
    this.#killGroup();
  }

  #post(message: unknown): void {
    if (this.ready) this.#say(message);
    else this.#early.push(message);
  }

  #say(message: unknown): void {
    if (this.#worker.isConnected()) this.#worker.send(message as object);
  }

  #settled(): void {
    this.onReady?.();
    this.onReady = undefined;
  }

  #killGroup(): void {
    if (this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL'); // what it started
    } catch {
      // Nothing was, or it ended before it had a group of its own.
    }
  }

  #ended(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exit !== undefined) return;
    this.#exit = { ...(code === null ? {} : { exitCode: code }), ...(signal === null ? {} : { signal }) };
    this.#killGroup();
    if (this.pid !== undefined) this.#janitor.gone(this.pid);
    this.#settled();
    if (this.#stderr?.ended !== false) this.#report();
    else setTimeout(() => this.#report(true), STDERR_GRACE_MS);
  }

  #report(late = this.#stderr?.ended !== false): void {
    if (this.#over || this.#exit === undefined || !late) return;
    this.#over = true;
    if (this.#events === undefined) this.onGone?.();
    else this.#events.onEnd({ ...this.#exit, lastStderr: this.#stderr?.last ?? [], ...this.#want() });
  }

  #want(): Pick<WorkerEnd, 'error' | 'outOfMemory'> {
    if (this.#heapFull === undefined || this.#exit?.exitCode === 0) return {};
    const message = `its JavaScript heap was full (${this.#heapFull.replace(/^.*FATAL ERROR: /, '')})`;
    return { outOfMemory: true, error: new RuntimeFailure('SINKFLEX_OUT_OF_MEMORY', message) };
  }
}
