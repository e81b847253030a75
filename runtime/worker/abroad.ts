// The way of a worker to those of other hosts, loaded when it is wanted: most workers never talk to another host.
import type { Direct } from '../links/direct.ts';
import { type Abroad, type Admission, dialGateway, type Network, type Transport } from '../wire/index.ts';
import type { SessionBirth } from './session.ts';

type Birth = SessionBirth & { gateway: string };
type Listening = Parameters<Network['listen']>;

export class LazyAbroad implements Abroad {
  readonly #birth: Birth;
  #direct: Promise<Direct> | undefined;
  #listening: Listening | undefined;
  #closed = false;

  private constructor(birth: Birth) {
    this.#birth = birth;
  }

  /** Undefined: there are no other hosts. */
  static of({ gateway, ...birth }: SessionBirth): LazyAbroad | undefined {
    return gateway === undefined ? undefined : new LazyAbroad({ ...birth, gateway });
  }

  async connect(peer: number): Promise<Transport | Admission> {
    const { direct, gateway, token, worker } = this.#birth;
    if (direct === undefined) return dialGateway(gateway, Buffer.from(token), worker, peer);
    return (await this.#load()).connect(peer);
  }

  listen(...listening: Listening): () => Promise<string> {
    this.#listening = listening;
    return async () => (this.#birth.direct === undefined || this.#closed ? '' : (await this.#load()).where());
  }

  #load(): Promise<Direct> {
    const { direct, gateway, token, worker } = this.#birth;
    this.#direct ??= import('../links/direct.ts').then(({ Direct }) => {
      const loaded = new Direct({ ...direct!, gateway, token: Buffer.from(token), worker });
      if (this.#listening !== undefined) loaded.listen(...this.#listening);
      return loaded;
    });
    return this.#direct;
  }

  hostGone(host: string): void {
    void this.#direct?.then((direct) => direct.hostGone(host));
  }

  close(): void {
    this.#closed = true;
    void this.#direct?.then((direct) => direct.close());
  }
}
