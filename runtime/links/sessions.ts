// The links of one end to others: opened when the first stream wants one, gone on with when the other side comes back, one session each.
// An end is the gateway of a host, or a worker that speaks with those of other hosts itself.
import { nanoid } from 'nanoid';
import { RuntimeFailure } from '../api/errors.ts';
import { dialDoor } from './dial.ts';
import type { Room } from './handshake.ts';
import { Link, type LinkOptions } from './link.ts';
import { readHello, readWelcome, writeHello, writeWelcome } from './meeting.ts';
import type { Pipe } from './pipe.ts';
import type { TlsFiles } from './tls.ts';

/** For the other side to say who it is. */
export const MEET_MS = 6000;

export interface SessionsOptions {
  /** As other ends know this one. */
  self: string;
  /** Its host; default: it is the gateway of it, and called the same. */
  host?: string | undefined;
  room: Room;
  token: Buffer;
  tls: TlsFiles | undefined;
  onOpen(link: Link, ...opening: Parameters<LinkOptions['onOpen']>): void;
  onEnd(link: Link, why: string): void;
  random?: (() => number) | undefined;
  leaseMs?: number | undefined;
}

type Meeting = { pipe: Pipe; received: number } | 'forgotten';

/** The other end, the host that it is on, and where it listens. */
export interface OtherEnd {
  end: string;
  host: string;
  url: string;
}

export class Sessions {
  readonly self: string;
  readonly #options: SessionsOptions;
  /** By the other end: where what is new goes. */
  readonly #links = new Map<string, Link>();
  /** With the end that each goes to. */
  readonly #all = new Map<Link, string>();
  readonly #dialing = new Map<string, Promise<Link>>();
  closed = false;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.self = options.self;
  }

  all(): Iterable<Link> {
    return this.#all.keys();
  }

  existing(end: string): Link | undefined {
    const link = this.#links.get(end);
    return link?.ended === false ? link : undefined;
  }

  /** Rejects with SINKFLEX_UNREACHABLE. */
  async to(other: OtherEnd): Promise<Link> {
    const known = this.existing(other.end);
    if (known !== undefined) return known;
    if (this.closed) throw unreachable('this host is closing');
    let dialing = this.#dialing.get(other.end);
    if (dialing === undefined) {
      dialing = this.#dial(other).finally(() => this.#dialing.delete(other.end));
      this.#dialing.set(other.end, dialing);
    }
    return dialing;
  }

  async #dial({ end, host, url }: OtherEnd): Promise<Link> {
    const { self } = this;
    const { room, token, tls } = this.#options;
    const session = nanoid();
    const meet = async (link: Link | undefined): Promise<Meeting> => {
      const pipe = await dialDoor(url, room, token, tls, host);
      const fresh = link === undefined;
      pipe.send(writeHello({ from: self, host: this.#options.host ?? self, to: end, session, fresh, received: link?.received ?? 0 }));
      const welcome = await firstMessage(pipe, readWelcome);
      if (welcome.known) return { pipe, received: welcome.received };
      pipe.close();
      return 'forgotten';
    };
    const first = await meet(undefined);
    if (first === 'forgotten') throw unreachable('another process listens there now');
    const link: Link = this.#add(session, end, host, () =>
      meet(link).catch((error) => {
        // Its process is gone, says the kernel there: nothing to wait for.
        if (room === 'worker' && (error as RuntimeFailure).details?.refused === true) return 'forgotten';
        throw error;
      }),
    );
    link.adopt(first.pipe, first.received);
    return link;
  }

  #add(session: string, end: string, host: string, redial?: () => Promise<Meeting>): Link {
    const { random, leaseMs, onOpen, onEnd } = this.#options;
    const link: Link = new Link({
      session,
      host,
      onOpen: (...opening) => onOpen(link, ...opening),
      onEnd: (why) => {
        this.#all.delete(link);
        if (this.#links.get(end) === link) this.#links.delete(end);
        onEnd(link, why);
      },
      ...(redial === undefined ? {} : { redial }),
      ...(random === undefined ? {} : { random }),
      ...(leaseMs === undefined ? {} : { leaseMs }),
    });
    // Both may open one at the same moment: then there are two, and the newer takes what is new.
    this.#links.set(end, link);
    this.#all.set(link, end);
    return link;
  }

  /** Another end has come in. Answers the link that it has now, if it has one. */
  async accept(pipe: Pipe): Promise<Link | undefined> {
    try {
      const hello = await firstMessage(pipe, readHello);
      pipe.host = hello.host;
      const known = [...this.#all].find(([link, end]) => link.session === hello.session && end === hello.from)?.[0];
      if (this.closed || hello.to !== this.self || (known === undefined && !hello.fresh)) {
        pipe.send(writeWelcome({ known: false, received: 0 }));
        pipe.close();
        return undefined;
      }
      const link = known ?? this.#add(hello.session, hello.from, hello.host);
      pipe.send(writeWelcome({ known: true, received: link.received }));
      link.adopt(pipe, hello.received);
      return link;
    } catch {
      pipe.destroy('protocol');
      return undefined;
    }
  }

  /** The head says that host is no more: nobody waits for it. */
  hostGone(host: string): void {
    for (const link of [...this.all()]) if (link.host === host) link.end('the host is gone');
  }

  close(): void {
    this.closed = true;
    for (const link of [...this.all()]) link.close();
  }
}

export function unreachable(why: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_UNREACHABLE', why);
}

/** The first message of a pipe; what follows waits in it. */
function firstMessage<T>(pipe: Pipe, read: (data: Buffer) => T): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      pipe.destroy();
      reject(unreachable('the other host did not say who it is'));
    }, MEET_MS);
    pipe.first(
      (data) => {
        clearTimeout(timer);
        try {
          resolve(read(data));
        } catch (error) {
          pipe.destroy('protocol');
          reject(error as Error);
        }
      },
      () => {
        clearTimeout(timer);
        reject(unreachable('the other host closed the connection'));
      },
    );
  });
}
