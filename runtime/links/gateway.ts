// The way from the workers of this host to those of others, and back: one link to each other host, opened when the first channel wants it.
// Hosts find each other by the head, and then need it no more.
import { nanoid } from 'nanoid';
import { RuntimeFailure } from '../api/errors.ts';
import type { Route, StoreBirth } from '../control/index.ts';
import { admissions, dialSocket, type Entered, handshake, type Listener, listenSockets } from '../wire/index.ts';
import { shareWith } from './blocks.ts';
import { dialDoor } from './dial.ts';
import { Link } from './link.ts';
import { LocalEnd } from './local-end.ts';
import { readHello, readWelcome, writeHello, writeWelcome } from './meeting.ts';
import type { Pipe } from './pipe.ts';
import type { Stream } from './stream.ts';
import type { TlsFiles } from './tls.ts';

export interface GatewayOptions {
  /** Where the sockets of this host's workers are. */
  folder: string;
  /** Path of its own. */
  socket: string;
  token: Buffer;
  store: StoreBirth | undefined;
  tls: TlsFiles | undefined;
  /** Asks the head. Rejects with SINKFLEX_UNREACHABLE. */
  route(worker: number): Promise<Route>;
  random?: () => number;
  leaseMs?: number;
}

/** For the other host to open the channel, or to come here. */
const OPEN_MS = 6000;

export class Gateway {
  /** This host, as long as this process lives. */
  readonly host = nanoid();
  readonly #options: GatewayOptions;
  readonly #links = new Map<string, Link>();
  readonly #dialing = new Map<string, Promise<Link>>();
  /** Links that other hosts were asked to open. */
  readonly #expected = new Map<string, Set<(link: Link) => void>>();
  /** By last number. */
  #routes: Route[] = [];
  #listener: Listener | undefined;
  #closed = false;

  constructor(options: GatewayOptions) {
    this.#options = options;
    shareWith(options.store?.account);
  }

  /** Lets the workers of this host in. */
  async open(): Promise<void> {
    const { socket, token } = this.#options;
    this.#listener = await listenSockets(socket, token, 'gateway', (side, entered) => this.#local(side.caller, entered));
  }

  links(): Iterable<Link> {
    return this.#links.values();
  }

  // --- from here to there

  #local(caller: number, { socket, rest }: Entered): void {
    if (rest.length > 0) socket.unshift(rest);
    handshake(socket, 4, (wanted, more) => {
      const callee = wanted.readUInt32LE(0);
      this.#openStream(caller, callee, { socket, rest: more }).catch(() => socket.destroy());
    });
  }

  async #openStream(caller: number, callee: number, local: Entered): Promise<void> {
    const { socket } = local;
    const route = await this.#route(callee);
    if (route.host === this.host) throw unreachable(`worker ${callee} is of this host, and gone`);
    const link = await this.#linkTo(route);
    await new Promise<void>((resolve, reject) => {
      const stream: Stream = link.open(caller, callee, (admission) => {
        clearTimeout(timer);
        if (admission === undefined || socket.destroyed) {
          if (admission === 0) link.abort(stream);
          this.#forgetRoute(callee);
          reject(unreachable(`worker ${callee} is not there`));
          return;
        }
        socket.write(Buffer.from([admission]));
        if (admission === 0) new LocalEnd(local, link, stream);
        else socket.end();
        resolve();
      });
      const timer = setTimeout(() => {
        link.abort(stream);
        reject(unreachable(`the host of worker ${callee} does not answer`));
      }, OPEN_MS);
    });
  }

  async #route(worker: number): Promise<Route> {
    const known = this.#routes.find(({ first, last }) => worker >= first && worker <= last);
    if (known !== undefined) return known;
    const route = await this.#options.route(worker);
    this.#routes.push(route);
    return route;
  }

  #forgetRoute(worker: number): void {
    this.#routes = this.#routes.filter(({ first, last }) => worker < first || worker > last);
  }

  async #linkTo(route: Route): Promise<Link> {
    const { host, url } = route;
    const known = this.#links.get(host);
    if (known !== undefined && !known.ended) return known;
    if (this.#closed) throw unreachable('this host is closing');
    if (url === undefined) return this.#expect(host);
    let dialing = this.#dialing.get(host);
    if (dialing === undefined) {
      dialing = this.#dial(host, url).finally(() => this.#dialing.delete(host));
      this.#dialing.set(host, dialing);
    }
    return dialing;
  }

  /** The other host was asked to come: it will, or not. */
  #expect(host: string): Promise<Link> {
    return new Promise((resolve, reject) => {
      const waiting = this.#expected.get(host) ?? new Set();
      this.#expected.set(host, waiting);
      const came = (link: Link): void => {
        clearTimeout(timer);
        resolve(link);
      };
      waiting.add(came);
      const timer = setTimeout(() => {
        waiting.delete(came);
        this.#routes = this.#routes.filter((route) => route.host !== host);
        reject(unreachable('neither host listens where the other can go, or it is gone'));
      }, OPEN_MS);
    });
  }

  /** Goes to that host, which somebody there or the head asked for. */
  async dial(host: string, url: string): Promise<void> {
    await this.#linkTo({ host, url, first: 0, last: 0 });
  }

  async #dial(host: string, url: string): Promise<Link> {
    const session = nanoid();
    const meet = async (link: Link | undefined): Promise<{ pipe: Pipe; received: number } | 'forgotten'> => {
      const pipe = await dialDoor(url, 'link', this.#options.token, this.#options.tls, host);
      pipe.send(writeHello({ from: this.host, to: host, session, fresh: link === undefined, received: link?.received ?? 0 }));
      const welcome = await firstMessage(pipe, readWelcome);
      if (welcome.known) return { pipe, received: welcome.received };
      pipe.close();
      return 'forgotten';
    };
    const first = await meet(undefined);
    if (first === 'forgotten') throw unreachable('another process listens there now');
    const link: Link = this.#add(session, host, () => meet(link));
    link.adopt(first.pipe, first.received);
    return link;
  }

  #add(session: string, host: string, redial?: () => Promise<{ pipe: Pipe; received: number } | 'forgotten'>): Link {
    const { random, leaseMs } = this.#options;
    const link: Link = new Link({
      session,
      host,
      onOpen: (stream, caller, callee) => void this.#arrived(link, stream, caller, callee),
      onEnd: (why) => this.#linkEnded(link, why),
      ...(redial === undefined ? {} : { redial }),
      ...(random === undefined ? {} : { random }),
      ...(leaseMs === undefined ? {} : { leaseMs }),
    });
    // Both may open one at the same moment: then there are two, and the newer takes what is new.
    this.#links.set(host, link);
    this.#all.add(link);
    return link;
  }
  readonly #all = new Set<Link>();

  #linkEnded(link: Link, why: string): void {
    this.#all.delete(link);
    if (this.#links.get(link.host) === link) this.#links.delete(link.host);
    this.#routes = this.#routes.filter(({ host }) => host !== link.host);
    if (!this.#closed && link.streams > 0) process.stderr.write(`[sinkflex] the link to another host is over: ${why}\n`);
  }

  /** The head says that host is no more: nobody waits for it. */
  hostGone(host: string): void {
    for (const link of [...this.#all]) if (link.host === host) link.end('the host is gone');
  }

  // --- from there to here

  /** Another host has come in. */
  async accept(pipe: Pipe): Promise<void> {
    try {
      const hello = await firstMessage(pipe, readHello);
      pipe.host = hello.from;
      const known = [...this.#all].find(({ session, host }) => session === hello.session && host === hello.from);
      if (this.#closed || hello.to !== this.host || (known === undefined && !hello.fresh)) {
        pipe.send(writeWelcome({ known: false, received: 0 }));
        pipe.close();
        return;
      }
      const link = known ?? this.#add(hello.session, hello.from);
      pipe.send(writeWelcome({ known: true, received: link.received }));
      link.adopt(pipe, hello.received);
      const waiting = this.#expected.get(hello.from);
      this.#expected.delete(hello.from);
      for (const came of waiting ?? []) came(link);
    } catch {
      pipe.destroy('protocol');
    }
  }

  async #arrived(link: Link, stream: Stream, caller: number, callee: number): Promise<void> {
    const { folder, token } = this.#options;
    try {
      const entered = await dialSocket(folder, token, caller, callee, true);
      if (typeof entered === 'string') link.answer(stream, admissions.indexOf(entered));
      else if (stream.closing || link.ended) entered.socket.destroy();
      else {
        link.answer(stream, 0);
        new LocalEnd(entered, link, stream);
      }
    } catch {
      link.answer(stream, undefined);
    }
  }

  close(): void {
    this.#closed = true;
    this.#listener?.close();
    for (const link of [...this.#all]) link.close();
  }
}

function unreachable(why: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_UNREACHABLE', why);
}

/** The first message of a pipe; what follows waits in it. */
function firstMessage<T>(pipe: Pipe, read: (data: Buffer) => T): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      pipe.destroy();
      reject(unreachable('the other host did not say who it is'));
    }, OPEN_MS);
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
