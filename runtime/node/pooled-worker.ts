// A worker as the pool gives it to the agent: perhaps waiting for its start, watched by the monitor, within its memory limit, and with the
// reason of its end as far as anybody knows it.

import { RuntimeFailure } from '../api/errors.ts';
import type { FromAgent, ToAgent } from '../control/index.ts';
import type { StackSample } from '../observe/stack-sample.ts';
import type { CarrierEvents, EnvironmentChange, Spare, WorkerCarrier, WorkerEnd, WorkerRequest } from './carrier.ts';
import type { MemoryAccounts } from './memory-limit.ts';
import type { Monitor, Watch } from './monitor.ts';
import { processStack, threadStack } from './stack.ts';

export interface PooledEvents {
  onStarted(): void;
  onEnded(): void;
}

export class PooledWorker implements WorkerCarrier {
  readonly #request: WorkerRequest;
  readonly #events: CarrierEvents;
  readonly #pool: PooledEvents;
  readonly #accounts: MemoryAccounts;
  readonly #watch: Watch;
  readonly #memoryGroup: string | undefined;
  #carrier: WorkerCarrier | undefined;
  #unsent: FromAgent[] = [];
  #destroyed = false;
  #patienceMs: number;
  #over = false;

  constructor(request: WorkerRequest, events: CarrierEvents, pool: PooledEvents, monitor: Monitor, accounts: MemoryAccounts) {
    this.#request = request;
    this.#events = events;
    this.#pool = pool;
    this.#accounts = accounts;
    const { birth, memory, unresponsiveMs } = request;
    this.#patienceMs = unresponsiveMs;
    this.#memoryGroup = memory > 0 ? accounts.groups.make(birth.worker, memory) : undefined;
    this.#watch = monitor.watch(
      birth.isolation === 'thread',
      { memory, unresponsiveMs, memoryGroup: this.#memoryGroup },
      { onHealth: (health, forMs) => events.onHealth?.(health, forMs), onCondemned: () => this.#carrier?.destroy() },
    );
  }

  get pid(): number | undefined {
    return this.#carrier?.pid;
  }

  /** Nobody waits for its start any more. */
  get over(): boolean {
    return this.#over || this.#destroyed;
  }

  begin(spare: Spare, environment: EnvironmentChange): void {
    const { birth, label } = this.#request;
    const memoryGroup = this.#memoryGroup;
    const told = { ...birth, tick: this.#watch.cell, ...(memoryGroup === undefined ? {} : { memoryGroup }) };
    const waited = this.#unsent.length > 0;
    this.#carrier = spare.adopt(
      { birth: told, label, environment },
      {
        onLine: this.#events.onLine,
        onMessage: (message: ToAgent) => {
          if (message.t === 'started') this.#pool.onStarted();
          this.#events.onMessage(message);
        },
        onEnd: (end) => this.#ended(end),
      },
    );
    this.#watch.began(this.#carrier.pid);
    if (waited) this.#events.onPid?.();
    for (const message of this.#unsent.splice(0)) this.#carrier.send(message);
  }

  /** It could not be started. */
  fail(error: unknown): void {
    setImmediate(() => this.#ended({ exitCode: -1, lastStderr: [], error }));
  }

  send(message: FromAgent): void {
    if (this.#carrier === undefined) this.#unsent.push(message);
    else this.#carrier.send(message);
  }

  destroy(): void {
    if (this.#carrier !== undefined) this.#carrier.destroy();
    else if (!this.#destroyed) setImmediate(() => this.#ended({ signal: 'SIGKILL', lastStderr: [] }));
    this.#destroyed = true;
  }

  /** Of the actors that share it the least patient one counts. */
  expect(unresponsiveMs: number): void {
    if (this.#patienceMs > 0 && this.#patienceMs <= unresponsiveMs) return;
    this.#patienceMs = unresponsiveMs;
    this.#watch.setUnresponsiveMs(unresponsiveMs);
  }

  /** What its loop is executing, also if it never turns. */
  async stack(timeoutMs = 1000): Promise<StackSample> {
    if (this.#carrier === undefined) return { state: 'silent', frames: [] };
    const { threadId } = this.#carrier;
    const { folder, token, worker } = this.#request.birth;
    return threadId === undefined ? processStack(folder, Buffer.from(token), worker, timeoutMs) : threadStack(threadId);
  }

  #ended(end: WorkerEnd): void {
    if (this.#over) return;
    this.#over = true;
    const because = { ...(this.#destroyed ? {} : this.#kernelKill(end)), ...this.#watch.verdict() };
    this.#watch.end();
    if (this.#memoryGroup !== undefined) this.#accounts.groups.remove(this.#memoryGroup);
    this.#events.onEnd({ ...end, ...because });
    this.#pool.onEnded();
  }

  /** A SIGKILL that came from the kernel for want of memory is counted by the control group that had none. */
  #kernelKill(end: WorkerEnd): Pick<WorkerEnd, 'error' | 'outOfMemory'> {
    if (end.signal !== 'SIGKILL' || !this.#accounts.wasKernelKill(this.#memoryGroup)) return {};
    return { outOfMemory: true, error: new RuntimeFailure('SINKFLEX_OUT_OF_MEMORY', 'the kernel ended it: there was no more memory') };
  }
}
