// How workers of a run reach each other: by ports where both are threads of one process, by local sockets on one host, by way of the
// gateways of their hosts otherwise. Whoever is asked for
// a channel may say no: it is opening one itself at that moment, or has too many.
import type { Transport } from './channel.ts';
import { dialGateway } from './gateway-dial.ts';
import { answerPort, type Broker, portTo } from './port.ts';
import { dial, type Listener, listen } from './socket.ts';

/** `mine`: use the one that I am opening to you, or that we have; `full`: I have too many. */
export type Admission = 'yes' | 'mine' | 'full';

export interface Network {
  /** Rejects if nobody listens there. */
  connect(peer: number): Promise<Transport | Admission>;
  /** `admit` is asked about each caller that has proved itself, `arrived` gets those that are let in, at once. */
  listen(admit: (caller: number) => Admission, arrived: (caller: number, transport: Transport) => void): Promise<Listener>;
}

export class LocalNetwork implements Network {
  readonly #folder: string;
  readonly #token: Buffer;
  readonly #self: number;
  readonly #broker: Broker | undefined;
  readonly #gateway: string | undefined;

  /** `gateway`: socket of the way to other hosts, if there is one. */
  constructor(folder: string, token: Uint8Array, self: number, broker?: Broker, gateway?: string) {
    this.#gateway = gateway;
    this.#folder = folder;
    this.#token = Buffer.from(token);
    this.#self = self;
    this.#broker = broker;
  }

  async connect(peer: number): Promise<Transport | Admission> {
    const answer = this.#broker === undefined ? undefined : await portTo(this.#broker, peer);
    if (answer !== undefined) return answer;
    if (this.#gateway === undefined) return dial(this.#folder, this.#token, this.#self, peer);
    try {
      return await dial(this.#folder, this.#token, this.#self, peer);
    } catch (error) {
      if (!isNobody(error)) throw error;
      return dialGateway(this.#gateway, this.#token, this.#self, peer);
    }
  }

  async listen(admit: (caller: number) => Admission, arrived: (caller: number, transport: Transport) => void): Promise<Listener> {
    const stop = this.#broker?.accept(this.#self, (caller, port) => {
      const transport = answerPort(port, admit(caller));
      if (transport !== undefined) arrived(caller, transport);
    });
    const sockets = await listen(this.#folder, this.#token, this.#self, arrived, () => {}, admit);
    return {
      close() {
        stop?.();
        sockets.close();
      },
    };
  }
}

/** Nobody of that number listens on this host. */
function isNobody(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === 'ENOENT' || code === 'ECONNREFUSED';
}
