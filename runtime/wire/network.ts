// How workers of a run reach each other: by ports where both are threads of one process, by local sockets on one host, over
// links to other hosts. Whoever is asked for a channel may say no: it is opening one itself at that moment, or has too many.
import type { Transport } from './channel.ts';
import { answerPort, type Broker, portTo } from './port.ts';
import { dial, type Listener, listen } from './socket.ts';

/** `mine`: use the one that I am opening to you, or that we have; `full`: I have too many. */
export type Admission = 'yes' | 'mine' | 'full';

export interface Network {
  /** Rejects if nobody listens there. */
  connect(peer: number): Promise<Transport | Admission>;
  /** `admit` is asked about each caller that has proved itself, `arrived` gets those that are let in, at once. */
  listen(admit: (caller: number) => Admission, arrived: (caller: number, transport: Transport) => void): Promise<Listener>;
  /** The head says that it is no more: nobody waits for it. */
  hostGone?(host: string): void;
}

/** The way to workers of other hosts, and theirs to this one. */
export interface Abroad {
  /** Rejects with SINKFLEX_UNREACHABLE. */
  connect(peer: number): Promise<Transport | Admission>;
  /** Answers how to find out where others can come in without gateways. */
  listen(...of: Parameters<Network['listen']>): () => Promise<string>;
  /** That host is no more. */
  hostGone(host: string): void;
  close(): void;
}

export class LocalNetwork implements Network {
  readonly #folder: string;
  readonly #token: Buffer;
  readonly #self: number;
  readonly #broker: Broker | undefined;
  readonly #abroad: Abroad | undefined;

  /** `abroad`: the way to other hosts, if there are any. */
  constructor(folder: string, token: Uint8Array, self: number, broker?: Broker, abroad?: Abroad) {
    this.#abroad = abroad;
    this.#folder = folder;
    this.#token = Buffer.from(token);
    this.#self = self;
    this.#broker = broker;
  }

  async connect(peer: number): Promise<Transport | Admission> {
    const answer = this.#broker === undefined ? undefined : await portTo(this.#broker, peer);
    if (answer !== undefined) return answer;
    if (this.#abroad === undefined) return dial(this.#folder, this.#token, this.#self, peer);
    try {
      return await dial(this.#folder, this.#token, this.#self, peer);
    } catch (error) {
      if (!isNobody(error)) throw error;
      return this.#abroad.connect(peer);
    }
  }

  async listen(admit: (caller: number) => Admission, arrived: (caller: number, transport: Transport) => void): Promise<Listener> {
    const stop = this.#broker?.accept(this.#self, (caller, port) => {
      const transport = answerPort(port, admit(caller));
      if (transport !== undefined) arrived(caller, transport);
    });
    const door = this.#abroad?.listen(admit, arrived);
    const sockets = await listen(this.#folder, this.#token, this.#self, arrived, () => {}, admit, door);
    return {
      close: () => {
        stop?.();
        sockets.close();
        this.#abroad?.close();
      },
    };
  }

  hostGone(host: string): void {
    this.#abroad?.hostGone(host);
  }
}

/** Nobody of that number listens on this host. */
function isNobody(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === 'ENOENT' || code === 'ECONNREFUSED';
}
