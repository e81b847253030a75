/** Composition: gates first, in their order; then the weighted sum of all components, asked at once, each with its deadline. */
import { isSinkflexError } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import type { Composed, RewardComponent, ScoredEpisode, Weighted } from './types.ts';

export class RewardComposition {
  readonly components: readonly Weighted[];
  readonly #closed: number;

  /** `closed`: the reward where a gate is shut. */
  constructor(components: readonly Weighted[], closed = 0) {
    this.components = components;
    this.#closed = closed;
  }

  get names(): string[] {
    return this.components.map((w) => w.component.name);
  }

  /** SINKFLEX_REWARD_INVALID for a value that is not a finite number, SINKFLEX_REWARD_FAILED for one that does not come. */
  async score(episode: ScoredEpisode): Promise<Composed> {
    const parts: Record<string, number> = {};
    for (const w of this.components) {
      if (w.gate === undefined) continue;
      const value = await ask(w, episode);
      parts[w.component.name] = value;
      if (value < w.gate) return { reward: this.#closed, parts, shut: w.component.name };
    }
    await Promise.all(
      this.components.map(async (w) => {
        if (w.gate === undefined) parts[w.component.name] = await ask(w, episode);
      }),
    );
    const reward = this.components.reduce((sum, w) => sum + w.weight * parts[w.component.name]!, 0);
    if (!Number.isFinite(reward)) throw invalid('the weighted sum', reward);
    return { reward, parts: Object.fromEntries(this.names.map((name) => [name, parts[name]!])) };
  }

  async close(): Promise<void> {
    await Promise.all(this.components.map((w) => w.component.close?.()));
  }
}

async function ask(w: Weighted, episode: ScoredEpisode): Promise<number> {
  const { component, timeoutMs } = w;
  const stop = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  try {
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(failed(component, `it gave no value within ${timeoutMs} ms`));
        stop.abort();
      }, timeoutMs);
    });
    const value: unknown = await Promise.race([Promise.resolve(component.score(episode, stop.signal)), late]);
    if (typeof value !== 'number' || !Number.isFinite(value)) throw invalid(component.name, value);
    return value;
  } catch (cause) {
    if (isSinkflexError(cause)) throw cause;
    throw failed(component, cause instanceof Error ? cause.message : String(cause), cause);
  } finally {
    clearTimeout(timer);
  }
}

function invalid(name: string, value: unknown): ActorsError {
  const shown = typeof value === 'number' || typeof value === 'boolean' ? String(value) : typeof value;
  return new ActorsError('SINKFLEX_REWARD_INVALID', `reward ${name} is ${shown}, not a finite number: the episode is left out`, {
    details: { component: name, value: shown },
  });
}

function failed(component: RewardComponent, why: string, cause?: unknown): ActorsError {
  return new ActorsError('SINKFLEX_REWARD_FAILED', `reward ${component.name}: ${why}`, { cause, details: { component: component.name } });
}
