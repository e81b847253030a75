// Threads that a worker runs itself (those of its tasks) and that take part in the run: each has a number, calls actors and owns values,
// and talks to the agent through the worker that it belongs to.
import type { ToAgent } from '../control/index.ts';
import type { Directory, Subscriber } from './directory.ts';

export class Guests {
  readonly #directory: Directory;
  /** Guest's number -> who it is, and the worker that it belongs to. */
  readonly #guests = new Map<number, { subscriber: Subscriber; host: number }>();

  constructor(directory: Directory) {
    this.#directory = directory;
  }

  join(worker: number, host: Subscriber, request: number): void {
    const subscriber: Subscriber = { worker, send: (message) => host.send({ t: 'guest', worker, message }) };
    this.#guests.set(worker, { subscriber, host: host.worker });
    host.send({ t: 'guest-joined', request, worker });
  }

  /** What a guest says, as if it had said it itself; undefined if that worker has no such guest. */
  unwrap(message: Extract<ToAgent, { t: 'guest' }>, from: Subscriber): Subscriber | undefined {
    const guest = this.#guests.get(message.worker);
    return guest?.host === from.worker ? guest.subscriber : undefined;
  }

  left(worker: number, from: Subscriber): void {
    if (this.#guests.get(worker)?.host !== from.worker) return;
    this.#guests.delete(worker);
    this.#directory.gone(worker);
  }

  /** A worker is gone, and its threads with it. */
  hostGone(host: number): void {
    for (const [worker, guest] of this.#guests) {
      if (guest.host !== host) continue;
      this.#guests.delete(worker);
      this.#directory.gone(worker);
    }
  }
}
