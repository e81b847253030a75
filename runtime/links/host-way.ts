// The way of one process to the workers of other hosts, and of others to those of this one: a gateway, and a door where others can come in.
import type { DirectBirth, HostInfo, Route, StoreBirth } from '../control/index.ts';
import { type HostPort, isLoopback, parseClusterUrl } from './address.ts';
import { dialDoor } from './dial.ts';
import { Door } from './door.ts';
import { Gateway } from './gateway.ts';
import { PipeTransport } from './pipe-transport.ts';
import type { TlsFiles } from './tls.ts';

export interface HostWayOptions {
  /** Where the sockets of this host's workers are. */
  folder: string;
  /** Path of the gateway's. */
  socket: string;
  token: Buffer;
  tls: TlsFiles | undefined;
  /** Where the head listens, for its host if this process is on it. */
  headUrl: string;
  /** Where others come in; default: a free port of loopback if the head listens there, nowhere otherwise. */
  listen?: HostPort | undefined;
  /** By which others know this host. */
  names?: readonly string[] | undefined;
  store: StoreBirth | undefined;
  route(worker: number, host: string, url: string | undefined): Promise<Route>;
}

export class HostWay {
  readonly gateway: Gateway;
  readonly socket: string;
  readonly #options: HostWayOptions;
  #door: Door | undefined;

  constructor(options: HostWayOptions) {
    const { folder, socket, token, store, tls } = options;
    this.#options = options;
    this.socket = socket;
    this.gateway = new Gateway({
      folder,
      socket,
      token,
      store,
      tls,
      route: (worker) => options.route(worker, this.gateway.host, this.#door?.url),
    });
  }

  /** Where others can come in, and the certificate for it. */
  #place(): { listen: HostPort; tls: TlsFiles | undefined } | undefined {
    const { listen, headUrl, tls } = this.#options;
    if (listen !== undefined) return { listen, tls };
    return isLoopback(parseClusterUrl(headUrl).host) ? { listen: { host: '127.0.0.1', port: 0 }, tls: undefined } : undefined;
  }

  /** For the workers of this host, who have links of their own. */
  get direct(): DirectBirth {
    const { tls, names } = this.#options;
    const place = this.#place();
    const door = place && {
      host: place.listen.host,
      ...(names === undefined ? {} : { names }),
      ...(place.tls === undefined ? {} : { tls: place.tls }),
    };
    return { host: this.gateway.host, ...(door === undefined ? {} : { door }), ...(tls === undefined ? {} : { tls }) };
  }

  async open(): Promise<void> {
    const { token, names } = this.#options;
    const place = this.#place();
    await this.gateway.open();
    if (place === undefined) return;
    this.#door = await Door.open({
      ...place,
      token,
      ...(names === undefined ? {} : { names }),
      rooms: { link: (pipe) => void this.gateway.accept(pipe) },
    });
  }

  get url(): string | undefined {
    return this.#door?.url;
  }

  /** What the head is told. */
  info(numbers: HostInfo['numbers']): HostInfo {
    return { host: this.gateway.host, ...(this.url === undefined ? {} : { url: this.url }), numbers: [...numbers] };
  }

  /** What the head says. */
  heard(message: { t: 'dial'; host: string; url: string } | { t: 'host-gone'; host: string }): void {
    if (message.t === 'host-gone') this.gateway.hostGone(message.host);
    // Whoever waits for it is told there.
    else void this.gateway.dial(message.host, message.url).catch(() => {});
  }

  close(): void {
    this.gateway.close();
    this.#door?.close();
  }
}

/** A connection to the head by its URL. */
export async function connectHead(url: string, token: Buffer, tls: TlsFiles | undefined): Promise<PipeTransport> {
  return new PipeTransport(await dialDoor(url, 'head', token, tls));
}
