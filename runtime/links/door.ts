// Where other hosts come in: an HTTP server that says nothing but /livez and /readyz, without a body, and lets those through who prove the
// token over a WebSocket. TLS is required where others than this host can get at it.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, isIP } from 'node:net';
import { hostname } from 'node:os';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { RuntimeFailure } from '../api/errors.ts';
import { type HostPort, hostPort, isLoopback } from './address.ts';
import { type FailureLimits, Failures } from './failures.ts';
import { HANDSHAKE_MS, proveToCaller, type Room, rooms } from './handshake.ts';
import { type Pipe, WebSocketPipe, webSocketOptions } from './pipe.ts';
import type { TlsFiles } from './tls.ts';

/** Callers that have not proved themselves yet, together. */
const MOST_STRANGERS = 64;
/** What one of them may send before that, the request included. */
const STRANGER_BYTES = 16 * 1024;

export interface DoorOptions {
  listen: HostPort;
  /** Needed off loopback: certificate and key, PEM. */
  tls?: TlsFiles | undefined;
  token: Buffer;
  /** Names beside its own address by which it is called: in a Host header anything else is refused. */
  names?: readonly string[];
  /** Whether it does what it is for. */
  ready?: () => boolean;
  /** Who goes where; a room that is not named is not there. */
  rooms: Partial<Record<Room, (pipe: Pipe) => void>>;
  failures?: FailureLimits;
}

export class Door {
  readonly #options: DoorOptions;
  readonly #failures: Failures;
  readonly #sockets = new Set<Duplex>();
  #strangers = 0;
  #server!: Server;
  /** ws:// or wss://, with the port that it got. */
  url = '';
  /** Callers that were refused. */
  refused = 0;

  private constructor(options: DoorOptions) {
    this.#options = options;
    this.#failures = new Failures(options.failures);
  }

  static async open(options: DoorOptions): Promise<Door> {
    const { listen, tls } = options;
    if (!isLoopback(listen.host) && tls?.cert === undefined)
      throw new RuntimeFailure(
        'SINKFLEX_TLS_REQUIRED',
        `others than this host can get at ${hostPort(listen)}: give a certificate (sinkflex certs makes one), or listen on 127.0.0.1`,
      );
    const door = new Door(options);
    await door.#listen();
    return door;
  }

  async #listen(): Promise<void> {
    const { listen, tls } = this.#options;
    const http = { maxHeaderSize: 8192, headersTimeout: HANDSHAKE_MS, requestTimeout: HANDSHAKE_MS, keepAliveTimeout: 1000 };
    const server: Server =
      tls?.cert === undefined ? createServer(http) : createTlsServer({ ...http, cert: tls.cert, key: tls.key, minVersion: 'TLSv1.3' });
    this.#server = server;
    server.maxRequestsPerSocket = 100;
    const webSockets = new WebSocketServer({ noServer: true, clientTracking: false, ...webSocketOptions });
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.on('clientError', (_, socket) => socket.destroy());
    server.on('tlsClientError', (_, socket) => socket.destroy());
    server.on('request', (request, response) => this.#answer(request, response));
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on('error', () => socket.destroy());
      const room = rooms.find((each) => request.url === `/${each}`);
      const enter = room === undefined ? undefined : this.#options.rooms[room];
      const from = request.socket.remoteAddress ?? '';
      const refusal = this.#foreign(request)
        ? '403 Forbidden'
        : enter === undefined
          ? '404 Not Found'
          : this.#failures.blocked(from)
            ? '429 Too Many Requests'
            : this.#strangers >= MOST_STRANGERS || head.length > STRANGER_BYTES
              ? '503 Service Unavailable'
              : undefined;
      if (refusal !== undefined) {
        this.refused++;
        socket.end(`HTTP/1.1 ${refusal}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
        return;
      }
      webSockets.handleUpgrade(request, socket, head, (webSocket) => void this.#prove(webSocket, socket, room!, from, enter!));
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) =>
        reject(
          new RuntimeFailure('SINKFLEX_BAD_OPTION', `nothing can listen on ${hostPort(listen)}: ${(cause as Error).message}`, { cause }),
        ),
      );
      // exclusive: in a cluster worker the primary would own the socket otherwise.
      server.listen({ host: listen.host, port: listen.port, exclusive: true }, resolve);
    });
    const { port } = server.address() as AddressInfo;
    const anywhere = listen.host === '0.0.0.0' || listen.host === '::';
    const host = anywhere ? (this.#options.names?.[0] ?? hostname()) : listen.host;
    this.url = `${tls?.cert === undefined ? 'ws' : 'wss'}://${hostPort({ host, port })}`;
  }

  /** Addressed to somebody else, or sent by a page: browsers say where a page comes from, and rebinding shows in the name. */
  #foreign(request: IncomingMessage): boolean {
    const { host, origin } = request.headers;
    if (origin !== undefined || host === undefined) return true;
    const match = /^(?:\[([^\]]+)\]|([^:]+))(?::\d+)?$/.exec(host);
    const name = (match?.[1] ?? match?.[2] ?? '').toLowerCase();
    if (isIP(name) !== 0) return name !== request.socket.localAddress?.replace(/^::ffff:/, '');
    const own = [...(this.#options.names ?? []), this.#options.listen.host].map((each) => each.toLowerCase());
    return !(own.includes(name) || (name === 'localhost' && isLoopback(request.socket.localAddress?.replace(/^::ffff:/, '') ?? '')));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url;
    const asks = request.method === 'GET' || request.method === 'HEAD';
    const status = this.#foreign(request)
      ? 403
      : !asks || (path !== '/livez' && path !== '/readyz')
        ? 401
        : path === '/livez' || (this.#options.ready?.() ?? true)
          ? 200
          : 503;
    response.writeHead(status, { 'content-length': 0, connection: 'close' });
    response.end();
  }

  async #prove(webSocket: WebSocket, socket: Duplex, room: Room, from: string, enter: (pipe: Pipe) => void): Promise<void> {
    this.#strangers++;
    let bytes = 0;
    const count = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes > STRANGER_BYTES) socket.destroy();
    };
    socket.prependListener('data', count);
    let pipe: Pipe | undefined;
    try {
      await proveToCaller(webSocket, this.#options.token, room, () => {
        socket.off('data', count);
        pipe = new WebSocketPipe(webSocket, socket, { room });
      });
      this.#failures.succeeded(from);
    } catch {
      this.refused++;
      this.#failures.failed(from);
    } finally {
      this.#strangers--;
    }
    if (pipe !== undefined) enter(pipe);
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
