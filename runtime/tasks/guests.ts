// The owner's side of its task threads as guests of the run: each thread asks to join over a broadcast channel of this process when it
// starts, gets a number from the agent, and speaks with the agent through here.
import { BroadcastChannel } from 'node:worker_threads';
import type { FromAgent, ToAgent, WorkerBirth } from '../control/index.ts';
import type { Session } from '../worker/index.ts';

export type GuestBirth = Pick<WorkerBirth, 'worker' | 'folder' | 'token' | 'maxInFlightBytes' | 'channels' | 'store' | 'gateway'>;

/** From a thread. */
export type FromGuest = { t: 'join'; thread: number } | { t: 'say'; worker: number; message: ToAgent };
/** To a thread: by its thread's number until it has one in the run. */
export type ToGuest =
  | { t: 'welcome'; thread: number; birth: GuestBirth }
  | { t: 'hear'; worker: number; message: FromAgent }
  /** Look at your slot: it was cancelled. */
  | { t: 'cancel'; slot: number };

let pools = 0;

export class Guests {
  readonly channelName: string;
  readonly #session: Session;
  readonly #channel: BroadcastChannel;
  readonly #joining = new Map<number, number>();
  /** Thread -> its number in the run. */
  readonly #workers = new Map<number, number>();
  #requests = 0;

  constructor(session: Session) {
    this.#session = session;
    this.channelName = `sinkflex-tasks-${process.pid}-${session.worker}-${++pools}`;
    this.#channel = new BroadcastChannel(this.channelName);
    this.#channel.onmessage = (event) => this.#fromGuest((event as { data: FromGuest | ToGuest }).data as FromGuest);
    this.#channel.unref();
    session.guests = { receive: (message) => this.#fromAgent(message) };
  }

  #fromGuest(message: FromGuest): void {
    if (message.t === 'join') {
      this.#joining.set(++this.#requests, message.thread);
      this.#session.link.send({ t: 'guest-join', request: this.#requests });
    } else if (message.t === 'say') this.#session.link.send({ t: 'guest', worker: message.worker, message: message.message });
  }

  #fromAgent(message: Extract<FromAgent, { t: 'guest' | 'guest-joined' }>): void {
    if (message.t === 'guest') {
      this.#post({ t: 'hear', worker: message.worker, message: message.message });
      return;
    }
    const thread = this.#joining.get(message.request);
    if (thread === undefined) return;
    this.#joining.delete(message.request);
    this.#workers.set(thread, message.worker);
    this.#post({ t: 'welcome', thread, birth: { ...this.#session.birth, worker: message.worker } });
  }

  #post(message: ToGuest): void {
    this.#channel.postMessage(message);
  }

  cancelled(slot: number): void {
    this.#post({ t: 'cancel', slot });
  }

  /** Only these threads are left. */
  living(threads: ReadonlySet<number>): void {
    for (const [thread, worker] of this.#workers) {
      if (threads.has(thread)) continue;
      this.#workers.delete(thread);
      this.#session.link.send({ t: 'guest-left', worker });
    }
  }

  close(): void {
    this.#channel.close();
    this.#session.guests = undefined;
  }
}
