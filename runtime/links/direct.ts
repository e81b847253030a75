// How a worker reaches those of other hosts without the gateways: each listens when it is first asked where, and has a link of its own to
// every worker that it talks to. What cannot be reached so (a host that lets nobody in, a port that is closed) the gateways carry.
import { nanoid } from 'nanoid';
import type { DirectBirth } from '../control/index.ts';
import { type Abroad, type Admission, admissions, askDoor, dialGateway, type Network, type Transport } from '../wire/index.ts';
import { Door } from './door.ts';
import type { Link } from './link.ts';
import { LinkTransport } from './link-transport.ts';
import { type OtherEnd, Sessions, unreachable } from './sessions.ts';
import type { Stream } from './stream.ts';

export interface DirectOptions extends DirectBirth {
  worker: number;
  token: Buffer;
  /** Socket of the gateway of this host. */
  gateway: string;
}

/** For the other worker to answer; one that is busy for longer is reached by the gateways. */
const OPEN_MS = 6000;
/** Where nobody could get in is not tried again for so long. */
const CLOSED_MS = 60_000;

export class Direct implements Abroad {
  readonly #options: DirectOptions;
  readonly #sessions: Sessions;
  readonly #closedHosts = new Map<string, number>();
  #door: Promise<Door | undefined> | undefined;
  #admit: Parameters<Network['listen']>[0] = () => 'full';
  #arrived: Parameters<Network['listen']>[1] = () => {};

  constructor(options: DirectOptions) {
    this.#options = options;
    this.#sessions = new Sessions({
      self: nanoid(),
      host: options.host,
      room: 'worker',
      token: options.token,
      tls: options.tls,
      onOpen: (link, stream, caller) => this.#opened(link, stream, caller),
      onEnd: () => {},
    });
  }

  async connect(peer: number): Promise<Transport | Admission> {
    const { gateway, token, worker } = this.#options;
    const direct = await this.#direct(peer).catch(() => undefined);
    return direct ?? dialGateway(gateway, token, worker, peer);
  }

  async #direct(peer: number): Promise<Transport | Admission | undefined> {
    const { gateway, token, worker } = this.#options;
    const other = readWhere(await askDoor(gateway, token, worker, peer));
    if (other === undefined || (this.#closedHosts.get(other.host) ?? 0) > performance.now()) return undefined;
    const link = await this.#sessions.to(other).catch((error) => {
      this.#closedHosts.set(other.host, performance.now() + CLOSED_MS);
      throw error;
    });
    return new Promise((resolve, reject) => {
      const stream: Stream = link.open(worker, peer, 'own', (admission) => {
        clearTimeout(timer);
        if (admission === undefined) reject(unreachable(`worker ${peer} is not there`));
        else resolve(admission === 0 ? this.#transport(link, stream) : (admissions[admission] ?? 'full'));
      });
      const timer = setTimeout(() => {
        link.abort(stream);
        reject(unreachable(`worker ${peer} does not answer`));
      }, OPEN_MS);
    });
  }

  #transport(link: Link, stream: Stream): LinkTransport {
    return new LinkTransport(link, stream, () => {
      // Whoever opened it ends it: nothing is on its way then.
      if (link.opened && link.streams === 0) setImmediate(() => link.streams === 0 && link.close());
    });
  }

  listen(admit: Parameters<Network['listen']>[0], arrived: Parameters<Network['listen']>[1]): () => Promise<string> {
    this.#admit = admit;
    this.#arrived = arrived;
    return () => this.where();
  }

  /** For others, as text; empty: nowhere. */
  async where(): Promise<string> {
    const { door: place, token, host } = this.#options;
    if (place === undefined || this.#sessions.closed) return '';
    this.#door ??= Door.open({
      listen: { host: place.host, port: 0 },
      tls: place.tls,
      token,
      names: place.names,
      rooms: { worker: (pipe) => void this.#sessions.accept(pipe) },
    }).catch(() => undefined); // then the gateways carry it
    const door = await this.#door;
    return door === undefined ? '' : JSON.stringify({ end: this.#sessions.self, host, url: door.url } satisfies OtherEnd);
  }

  #opened(link: Link, stream: Stream, caller: number): void {
    const admission = this.#admit(caller);
    link.answer(stream, admissions.indexOf(admission));
    if (admission === 'yes') this.#arrived(caller, this.#transport(link, stream));
  }

  hostGone(host: string): void {
    this.#sessions.hostGone(host);
  }

  close(): void {
    this.#sessions.close();
    void this.#door?.then((door) => door?.close());
  }
}

function readWhere(text: string): OtherEnd | undefined {
  if (text === '') return undefined;
  const { end, host, url } = JSON.parse(text) as Record<string, unknown>;
  return typeof end === 'string' && typeof host === 'string' && typeof url === 'string' ? { end, host, url } : undefined;
}
