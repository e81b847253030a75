/** The life of a run within its process: the signal that ends it, and what is ended with it, in the reverse order of its beginning. */
import type { ModelConfig, WeightStore } from '../../kernels/index.ts';
import { init, shutdown } from '../../runtime/index.ts';
import { ActorsError } from '../errors.ts';
import type { TrainingConfig } from './config.ts';
import { clusterOptions, Hosts } from './hosts.ts';
import { initialiseWeights, makeStore } from './model.ts';

/** What shutting down may take before everything is killed; a user who pressed Ctrl-C waits at most two seconds in all. */
const SHUTDOWN_MS = 1000;

export class Session {
  readonly #ending = new AbortController();
  readonly #closers: (() => unknown)[] = [];
  readonly #aborted: Promise<never>;

  /** `stopped`: what a run that is ended from outside rejects with. */
  constructor(outside: AbortSignal | undefined, stopped: () => Error) {
    this.#aborted = new Promise((_, reject) => {
      const abort = () => {
        const error = stopped();
        this.#ending.abort(error);
        reject(error);
      };
      if (outside?.aborted) abort();
      outside?.addEventListener('abort', abort, { once: true });
    });
    this.#aborted.catch(() => {});
  }

  /** Aborted from outside, or when the run is over. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** What the work answers, or how the run was ended from outside. */
  race<T>(work: Promise<T>): Promise<T> {
    work.catch(() => {});
    return Promise.race([work, this.#aborted]);
  }

  atEnd(close: () => unknown): void {
    this.#closers.push(close);
  }

  async end(): Promise<void> {
    this.#ending.abort(new ActorsError('SINKFLEX_ABORTED', 'the run is over'));
    for (const close of this.#closers.reverse()) await close();
  }
}

/** The runtime, and the weights as the run begins with them: those of a checkpoint, of model.path, or random ones. All end with the session. */
export async function openRuntime(
  session: Session,
  config: TrainingConfig,
  model: ModelConfig,
  checkpoint?: string,
): Promise<{ store: WeightStore; hosts: Hosts }> {
  let store: WeightStore | undefined;
  // The actors read it until they are gone.
  session.atEnd(() => store?.close());
  session.atEnd(() => shutdown({ timeoutMs: SHUTDOWN_MS }));
  await init(clusterOptions(config));
  store = await makeStore(config, model, { checkpoint, signal: session.signal });
  await initialiseWeights(config, store, { checkpoint, signal: session.signal });
  const hosts = await Hosts.open(config, store);
  session.atEnd(() => hosts.close());
  return { store, hosts };
}
