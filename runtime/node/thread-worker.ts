// Worker threads of this process. A thread starts as a spare that belongs to nobody; adopting it tells it whose it is.
import { Worker } from 'node:worker_threads';
import type { FromAgent, RehearseMessage, ToAgent } from '../control/index.ts';
import { attach, openPort, type PortMessage } from '../wire/index.ts';
import { type Adoption, type CarrierEvents, entryUrl, type Spare, STDERR_GRACE_MS, type WorkerCarrier, type WorkerEnd } from './carrier.ts';
import { OutputLines } from './output.ts';
import { needsLoader } from './runtime-env.ts';

const entry = entryUrl('../worker/thread-main');

export function threadNeedsLoader(module: string): boolean {
  return needsLoader(entry.pathname, module);
}

export function startThread(label: string, withLoader: boolean): Spare {
  // Flags of the process hold in its threads anyway; loaders would be started again in each, so only where they are needed.
  const flags = withLoader ? {} : { execArgv: process.execArgv.filter((flag) => flag === '--enable-source-maps') };
  return new ThreadWorker(new Worker(entry, { ...flags, stdout: true, stderr: true, name: label }));
}

class ThreadWorker implements Spare, WorkerCarrier {
  readonly pid = process.pid;
  ready = false;
  onReady: (() => void) | undefined;
  onGone: (() => void) | undefined;
  readonly threadId: number;
  readonly #worker: Worker;
  readonly #stderr: OutputLines;
  #events: CarrierEvents | undefined;
  #lines: ['stdout' | 'stderr', string][] = [];
  #end: Omit<WorkerEnd, 'lastStderr'> | undefined;
  #error: Pick<WorkerEnd, 'error' | 'outOfMemory'> = {};
  #over = false;
  /** Number of the worker, once it is one. */
  #number = -1;
  #detach: (() => void) | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    this.threadId = worker.threadId;
    const line = (stream: 'stdout' | 'stderr') => (text: string) => {
      if (this.#events === undefined) this.#lines.push([stream, text]);
      else this.#events.onLine(stream, text);
    };
    this.#stderr = new OutputLines(worker.stderr, line('stderr'), () => {});
    new OutputLines(worker.stdout, line('stdout'), () => {});
    worker.on('error', (error) => {
      const full = (error as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY';
      this.#error = { error, ...(full ? { outOfMemory: true } : {}) };
    });
    worker.on('message', (message: ToAgent | PortMessage) => {
      if (message.t === 'port') this.#answerPort(message);
      else if (message.t !== 'ready') this.#events?.onMessage(message);
      else {
        this.ready = true;
        this.#settled();
      }
    });
    worker.on('exit', (exitCode) => {
      this.#end = { exitCode, ...this.#error };
      this.#detach?.();
      this.#settled();
      if (this.#stderr.ended) this.#report();
      else setTimeout(() => this.#report(), STDERR_GRACE_MS);
    });
  }

  rehearse(folder: string): void {
    this.#worker.postMessage({ t: 'rehearse', folder } satisfies RehearseMessage);
  }

  adopt({ birth, label, environment }: Adoption, events: CarrierEvents): WorkerCarrier {
    this.#events = events;
    for (const [stream, text] of this.#lines.splice(0)) events.onLine(stream, text);
    this.#number = birth.worker;
    this.#worker.postMessage({ t: 'birth', birth, label, environment });
    if (!this.#over)
      this.#detach = attach(birth.worker, (caller, port) =>
        this.#worker.postMessage({ t: 'port', caller, port } satisfies PortMessage, [port]),
      );
    if (this.#over) setImmediate(() => events.onEnd({ ...this.#end, lastStderr: this.#stderr.last }));
    return this;
  }

  /** The thread wants a channel to another thread of this process, or to the main thread. */
  #answerPort(message: PortMessage): void {
    if (!('peer' in message)) return;
    const { request, peer } = message;
    const port = openPort(this.#number, peer);
    if (port === undefined) this.#worker.postMessage({ t: 'port', request } satisfies PortMessage);
    else this.#worker.postMessage({ t: 'port', request, port } satisfies PortMessage, [port]);
  }

  send(message: FromAgent): void {
    this.#worker.postMessage(message);
  }

  destroy(): void {
    void this.#worker.terminate();
  }

  #settled(): void {
    this.onReady?.();
    this.onReady = undefined;
  }

  #report(): void {
    if (this.#over || this.#end === undefined) return;
    this.#over = true;
    if (this.#events === undefined) this.onGone?.();
    else this.#events.onEnd({ ...this.#end, lastStderr: this.#stderr.last });
  }
}
