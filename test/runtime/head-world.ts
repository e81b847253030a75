// A head with nodes that are made up: they obey at once, and say what real agents say. Messages go through a queue, so that a test decides
// what is delivered, how often, and when the connection breaks.
import type { ActorSpec, Died, FromHead, Hosted, Join, PeerLink, ToHead } from '../../runtime/control/index.ts';
import { specOf as simulated } from '../../runtime/faults/simulation/spec.ts';
import type { Head } from '../../runtime/head/index.ts';

/** The simulation's, with a driver as owner and no wait before a restart. */
export const specOf = (actor: number, more: Partial<ActorSpec> = {}): ActorSpec =>
  simulated(actor, { owner: 'driver/1', restartBackoffMs: 0, ...more });

/** One end of a connection to a head. `copies`: how often each message arrives, in both directions. */
export class Peer implements PeerLink {
  head: Head;
  readonly copies: number;
  readonly heard: FromHead[] = [];
  readonly said: ToHead[] = [];
  readonly #unread: FromHead[] = [];

  constructor(head: Head, copies = 1) {
    this.head = head;
    this.copies = copies;
  }

  send(message: FromHead): void {
    for (let i = 0; i < this.copies; i++) this.#unread.push(structuredClone(message));
  }

  say(message: ToHead): void {
    this.said.push(structuredClone(message));
    for (let i = 0; i < this.copies; i++) this.head.receive(structuredClone(message), this);
  }

  /** What it has said since it was last asked, again: late, when its effect has long come about. */
  sayAgain(): void {
    // A node that joins says what it has now; an old list is not said again.
    for (const message of this.said.splice(0)) if (message.t !== 'join') this.head.receive(message, this);
    this.said.length = 0;
  }

  /** Answers whether there was anything to read. */
  read(): boolean {
    const messages = this.#unread.splice(0);
    for (const message of messages) {
      this.heard.push(message);
      this.take(message);
    }
    return messages.length > 0;
  }

  protected take(_message: FromHead): void {}

  /** What the head said of where the actor is, last. */
  place(actor: number) {
    const places = this.heard.flatMap((message) => (message.t === 'place' && message.place.actor === actor ? [message.place] : []));
    return places.at(-1);
  }
}

export class MadeNode extends Peer {
  readonly node: string;
  readonly cpus: number;
  readonly hosted = new Map<number, Hosted>();
  readonly ends = new Map<string, Died>();
  readonly bundles = new Map<string, Join['bundles'][number]>();
  /** `actor incarnation` of everything that was ever started here, in order. */
  readonly starts: string[] = [];
  #worker = 1;
  #joined = false;

  constructor(head: Head, node: string, cpus: number, copies = 1) {
    super(head, copies);
    this.node = node;
    this.cpus = cpus;
  }

  join(): void {
    const { node, cpus } = this;
    this.say({
      t: 'join',
      node,
      pid: 1,
      processStart: node,
      total: { cpus },
      labels: {},
      needsNumbers: !this.#joined,
      hosted: [...this.hosted.values()],
      ended: [...this.ends.values()],
      bundles: [...this.bundles.values()],
    });
    this.#joined = true;
  }

  protected override take(message: FromHead): void {
    switch (message.t) {
      case 'start': {
        const { incarnation } = message;
        const { actor } = message.spec;
        if ((this.hosted.get(actor)?.incarnation ?? 0) >= incarnation || this.ends.has(`${actor} ${incarnation}`)) return;
        this.starts.push(`${actor} ${incarnation}`);
        const hosted: Hosted = { actor, incarnation, worker: this.#worker++, pid: 1, started: false };
        this.hosted.set(actor, hosted);
        this.say({ t: 'hosted', ...hosted });
        hosted.started = true;
        this.say({ t: 'started', actor, incarnation });
        return;
      }
      case 'stop':
        this.#stop(message);
        return;
      case 'heard':
        this.ends.delete(`${message.actor} ${message.incarnation}`);
        return;
      case 'prepare':
        for (const { bundle } of message.bundles)
          this.bundles.set(`${message.group} ${message.attempt} ${bundle}`, { group: message.group, attempt: message.attempt, bundle });
        this.say({ t: 'prepared', group: message.group, attempt: message.attempt, ok: true });
        return;
      case 'release':
        for (const bundle of message.bundles) this.bundles.delete(`${message.group} ${message.attempt} ${bundle}`);
        return;
    }
  }

  #stop({ actor, incarnation }: FromHead & { t: 'stop' }): void {
    const here = this.hosted.get(actor)?.incarnation ?? 0;
    if (here === incarnation) this.end(actor);
    else if (here < incarnation) this.#sayDied(actor, incarnation);
  }

  /** The incarnation that runs here ends. `silent`: nobody is there to be told, yet. */
  end(actor: number, silent = false): void {
    const hosted = this.hosted.get(actor);
    if (hosted === undefined) return;
    this.hosted.delete(actor);
    this.#sayDied(actor, hosted.incarnation, silent);
  }

  #sayDied(actor: number, incarnation: number, silent = false): void {
    const died: Died = { t: 'died', actor, incarnation, end: { exitCode: 1, lastStderr: [], constructorFailed: false } };
    this.ends.set(`${actor} ${incarnation}`, died);
    if (!silent) this.say(died);
  }
}

/** Until nobody has anything left to read, and the head nothing left to write down. */
export async function quiet(peers: Peer[], durable?: () => Promise<void>): Promise<void> {
  for (let idle = 0; idle < 2; ) {
    let read = false;
    for (const peer of peers) read = peer.read() || read;
    await durable?.();
    // Backoffs of 0 ms are timers.
    await new Promise((resolve) => setTimeout(resolve, 1));
    idle = read ? 0 : idle + 1;
  }
}
