// Questions of an agent to its workers, or of a head to its agents, each with a deadline: a worker that is blocked, stopped or gone costs no more than that.
import { RuntimeFailure } from '../api/errors.ts';
import { decodeError, type ErrorData } from '../wire/index.ts';

interface Asked {
  worker: number;
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
}

export class Questions {
  readonly #asked = new Map<number, Asked>();
  #next = 1;

  /** Rejects with SINKFLEX_NO_ANSWER when the time is up or the worker ends. */
  ask(worker: number, timeoutMs: number, send: (request: number) => void): Promise<unknown> {
    const request = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#asked.delete(request);
        reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `worker ${worker} did not answer within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#asked.set(request, { worker, resolve, reject, timer });
      send(request);
    });
  }

  /** An answer to a question that nobody waits for any more is dropped; so is one that another worker was asked. */
  reply(message: { request: number; answer?: unknown; error?: ErrorData }, worker: number): void {
    const asked = this.#asked.get(message.request);
    if (asked === undefined || asked.worker !== worker) return;
    this.#asked.delete(message.request);
    clearTimeout(asked.timer);
    if (message.error === undefined) asked.resolve(message.answer);
    else asked.reject(decodeError(message.error));
  }

  workerEnded(worker: number): void {
    for (const [request, asked] of this.#asked) {
      if (asked.worker !== worker) continue;
      this.#asked.delete(request);
      clearTimeout(asked.timer);
      asked.reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `worker ${worker} ended`));
    }
  }
}
