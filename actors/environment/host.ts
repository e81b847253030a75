/** Hosts many episodes of one environment at once, and makes their answers take as long as a latency model says. */
import { isSinkflexError } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { composeReward, type RewardComposition, RewardedEnvironment, type RewardSettings } from '../reward/index.ts';
import { parseLatency } from './latency.ts';
import { entry } from './registry.ts';
import type { Action, Environment, ResetResult, StepResult } from './types.ts';

export interface EnvironmentHostOptions {
  /** Name in the registry. */
  environment: string;
  /** Passed to the environment's `create`. */
  options?: Record<string, unknown>;
  /** See parseLatency; `none` by default. */
  latency?: string;
  /** Composes the score; the environment's own without it. */
  reward?: RewardSettings;
}

export interface HostResetOptions {
  seed: number;
  options?: Record<string, unknown>;
  /** Up to three uint32 (run seed, task, sample): with the number of the call they fix every delay of the episode. */
  latencyKey?: readonly number[];
}

export interface EnvironmentHostStats {
  open: number;
  resets: number;
  steps: number;
  failures: number;
}

interface Instance {
  environment: Environment;
  latencyKey: readonly number[];
  calls: number;
  /** The calls of one episode run one after the other. */
  tail: Promise<unknown>;
}

/**
 * Instances are named by the caller; `reset` makes one where there was none. An instance that this host does not have is
 * SINKFLEX_ENVIRONMENT_LOST; an exception of the environment is SINKFLEX_ENVIRONMENT_FAILED, and that instance is gone.
 */
export class EnvironmentHost {
  readonly #name: string;
  readonly #create: () => Environment;
  readonly #reward: RewardComposition | undefined;
  readonly #latency: ReturnType<typeof parseLatency>;
  readonly #instances = new Map<string, Instance>();
  readonly #counts = { resets: 0, steps: 0, failures: 0 };

  constructor(o: EnvironmentHostOptions) {
    const found = entry(o.environment);
    this.#name = o.environment;
    const reward = o.reward && composeReward(o.reward);
    this.#reward = reward;
    this.#create = () => {
      const made = found.create(o.options);
      return reward ? new RewardedEnvironment(o.environment, made, reward) : made;
    };
    this.#create(); // bad options fail here, not in the first episode
    this.#latency = parseLatency(o.latency ?? 'none');
  }

  async reset(instanceId: string, o: HostResetOptions): Promise<ResetResult> {
    let instance = this.#instances.get(instanceId);
    if (!instance) {
      instance = { environment: this.#create(), latencyKey: [], calls: 0, tail: Promise.resolve() };
      this.#instances.set(instanceId, instance);
    }
    instance.latencyKey = o.latencyKey ?? [0, o.seed, 0];
    instance.calls = 0;
    this.#counts.resets++;
    return this.#call(instanceId, instance, 'reset', (environment) =>
      environment.reset({ seed: o.seed, ...(o.options ? { options: o.options } : {}) }),
    );
  }

  async step(instanceId: string, action: Action): Promise<StepResult> {
    const instance = this.#instances.get(instanceId);
    if (!instance) throw this.#lost(instanceId);
    this.#counts.steps++;
    return this.#call(instanceId, instance, 'step', (environment) => environment.step(action));
  }

  /** Ends an episode; one that is not there is no error, for closing is what a cleaner does after a crash. */
  async close(instanceId: string): Promise<void> {
    const instance = this.#instances.get(instanceId);
    if (!instance) return;
    this.#instances.delete(instanceId);
    await instance.environment.close();
  }

  stats(): EnvironmentHostStats {
    return { open: this.#instances.size, ...this.#counts };
  }

  /** Lifecycle of an actor: ends every episode. */
  async stop(): Promise<void> {
    await Promise.all([...this.#instances.keys()].map((id) => this.close(id)));
    await this.#reward?.close();
  }

  #call<T>(id: string, instance: Instance, phase: 'reset' | 'step', run: (environment: Environment) => T | Promise<T>): Promise<T> {
    const k = instance.latencyKey;
    const delay = this.#latency.sample([k[0] ?? 0, k[1] ?? 0, k[2] ?? 0, instance.calls++]);
    const answer = instance.tail.then(async () => {
      // Closed while this call waited for its turn.
      if (this.#instances.get(id) !== instance) throw this.#lost(id);
      let result: T;
      try {
        result = await run(instance.environment);
      } catch (cause) {
        this.#counts.failures++;
        this.#instances.delete(id);
        // Whatever it holds goes with it.
        Promise.resolve(instance.environment.close()).catch(() => {});
        // What is typed already, such as a refused option, says more than we could.
        throw isSinkflexError(cause) ? cause : this.#failed(id, phase, cause);
      }
      if (delay > 0) {
        await new Promise((wake) => setTimeout(wake, delay));
        if (this.#instances.get(id) !== instance) throw this.#lost(id);
      }
      return result;
    });
    instance.tail = answer.catch(() => {});
    return answer;
  }

  #lost(id: string): ActorsError {
    return new ActorsError('SINKFLEX_ENVIRONMENT_LOST', `${this.#name}: there is no episode ${id} here: reset it, or redo the episode`, {
      details: { environment: this.#name, instance: id },
    });
  }

  #failed(id: string, phase: string, cause: unknown): ActorsError {
    const why = cause instanceof Error ? cause.message : String(cause);
    return new ActorsError('SINKFLEX_ENVIRONMENT_FAILED', `${this.#name}: ${phase} of episode ${id} threw: ${why}`, {
      cause,
      details: { environment: this.#name, instance: id, phase },
    });
  }
}
