// The way from the workers of this host to those of others, and back: one link to each other host, opened when the first channel wants it.
// Hosts find each other by the head, and then need it no more.
import { nanoid } from 'nanoid';
import type { Route, StoreBirth } from '../control/index.ts';
import {
  admissions,
  dialSocket,
  type Entered,
  handshake,
  type Listener,
  listenSockets,
  type Purpose,
  readWanted,
  WANTED_BYTES,
} from '../wire/index.ts';
import { shareWith } from './blocks.ts';
import type { Link } from './link.ts';
import { LocalEnd } from './local-end.ts';
import type { Pipe } from './pipe.ts';
import { Sessions, unreachable } from './sessions.ts';
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
  readonly #sessions: Sessions;
  /** Links that other hosts were asked to open. */
  readonly #expected = new Map<string, Set<(link: Link) => void>>();
  /** By last number. */
  #routes: Route[] = [];
  #listener: Listener | undefined;

  constructor(options: GatewayOptions) {
    this.#options = options;
    const { token, tls, random, leaseMs } = options;
    this.#sessions = new Sessions({
      self: this.host,
      room: 'link',
      token,
      tls,
      onOpen: (link, ...opening) => void this.#arrived(link, ...opening),
      onEnd: (link, why) => this.#linkEnded(link, why),
      random,
      leaseMs,
    });
    shareWith(options.store?.account);
  }

  /** Lets the workers of this host in. */
  async open(): Promise<void> {
    const { socket, token } = this.#options;
    this.#listener = await listenSockets(socket, token, 'gateway', (side, entered) => this.#local(side.caller, entered));
  }

  links(): Iterable<Link> {
    return this.#sessions.all();
  }

  // --- from here to there

  #local(caller: number, { socket, rest }: Entered): void {
    if (rest.length > 0) socket.unshift(rest);
    handshake(socket, WANTED_BYTES, (data, more) => {
      const { callee, purpose } = readWanted(data);
      this.#openStream(caller, callee, purpose, { socket, rest: more }).catch(() => socket.destroy());
    });
  }

  async #openStream(caller: number, callee: number, purpose: Purpose, local: Entered): Promise<void> {
    const { socket } = local;
    const route = await this.#route(callee);
    if (route.host === this.host) throw unreachable(`worker ${callee} is of this host, and gone`);
    const link = await this.#linkTo(route);
    await new Promise<void>((resolve, reject) => {
      const stream: Stream = link.open(caller, callee, purpose, (admission) => {
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

  async #linkTo({ host, url }: Route): Promise<Link> {
    return this.#sessions.existing(host) ?? (url === undefined ? this.#expect(host) : this.#sessions.to({ end: host, host, url }));
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
    await this.#sessions.to({ end: host, host, url });
  }

  #linkEnded(link: Link, why: string): void {
    this.#routes = this.#routes.filter(({ host }) => host !== link.host);
    if (!this.#sessions.closed && link.streams > 0) process.stderr.write(`[sinkflex] the link to another host is over: ${why}\n`);
  }

  hostGone(host: string): void {
    this.#sessions.hostGone(host);
  }

  // --- from there to here

  /** Another host has come in. */
  async accept(pipe: Pipe): Promise<void> {
    const link = await this.#sessions.accept(pipe);
    if (link === undefined) return;
    const waiting = this.#expected.get(link.host);
    this.#expected.delete(link.host);
    for (const came of waiting ?? []) came(link);
  }

  async #arrived(link: Link, stream: Stream, caller: number, callee: number, purpose: Purpose): Promise<void> {
    const { folder, token } = this.#options;
    try {
      const entered = await dialSocket(folder, token, caller, callee, purpose);
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
    this.#listener?.close();
    this.#sessions.close();
  }
}
