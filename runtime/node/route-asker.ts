// Asks the head where the workers of other hosts are, for the gateway of this one.
import { RuntimeFailure } from '../api/errors.ts';
import type { Ask, FromAgent, Route, ToAgent } from '../control/index.ts';
import { decodeError } from '../wire/index.ts';
import type { Subscriber } from './directory.ts';

/** Numbers below 0 are no workers. */
const GATEWAY = -7;
const ANSWER_MS = 5000;

export class RouteAsker implements Subscriber {
  readonly worker = GATEWAY;
  readonly #say: (message: Extract<ToAgent, { t: 'ask' }>, from: Subscriber) => void;
  readonly #asked = new Map<number, { resolve: (route: Route) => void; reject: (error: Error) => void; timer: NodeJS.Timeout }>();
  #requests = 0;

  constructor(say: (message: Extract<ToAgent, { t: 'ask' }>, from: Subscriber) => void) {
    this.#say = say;
  }

  route(worker: number, host: string, url: string | undefined): Promise<Route> {
    const request = ++this.#requests;
    const ask: Ask = { q: 'route', worker, host, ...(url === undefined ? {} : { url }) };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#asked.delete(request);
        reject(new RuntimeFailure('SINKFLEX_UNREACHABLE', `the head did not say within ${ANSWER_MS} ms where worker ${worker} is`));
      }, ANSWER_MS);
      this.#asked.set(request, { resolve, reject, timer });
      this.#say({ t: 'ask', request, ask }, this);
    });
  }

  send(message: FromAgent): void {
    if (message.t !== 'answer') return;
    const asked = this.#asked.get(message.request);
    if (asked === undefined) return;
    this.#asked.delete(message.request);
    clearTimeout(asked.timer);
    if (message.error === undefined) asked.resolve(message.value as Route);
    else asked.reject(decodeError(message.error));
  }
}
