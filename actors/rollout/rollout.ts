/**
 * The rollout actor: one engine, very many episodes at once. The engine decodes all sequences that generate in one step (continuous
 * batching); an episode that waits for its environment is simply not in the step. Calls are concurrent: each assignment answers when its
 * last episode is done.
 */
import { deviceChoice, Engine, type EngineOptions, type StoreAddress, type WeightStore } from '../../kernels/index.ts';
import { type ActorHandle, currentActor, defineActor, withOptions } from '../../runtime/index.ts';
import { type EnvironmentActor, entry, trainingTask } from '../environment/index.ts';
import { type Chat, episodeIds } from '../language/index.ts';
import type { Task } from '../tasks/index.ts';
import type { Trajectory } from '../trajectory/index.ts';
import { type DialogueOptions, dialogueOf } from './dialogue.ts';
import { type EpisodeLimits, type EpisodeTask, type GenerationEngine, playEpisode, type RemoteEpisode } from './episode.ts';
import { playWithRetries } from './retry.ts';
import { ServerEngine, type ServerEngineOptions } from './server-engine.ts';
import { openWeights, type ReplicatedStore } from './weights.ts';

export interface RolloutOptions {
  store: StoreAddress | ReplicatedStore;
  threads: number;
  /** Where the engine computes: cpu (default), cuda or cuda:1. */
  device?: string;
  /** Episodes that run at once. */
  maxSequences: number;
  limits: EpisodeLimits;
  /** Environment, by its registered name. */
  environment: string;
  /** Whose chat format is used; the environment's own without it. */
  dialogue?: DialogueOptions;
  environmentOptions: Record<string, unknown>;
  environments: ActorHandle<typeof EnvironmentActor>[];
  runSeed: number;
  topK?: number;
  minP?: number;
  /** Options of the engine's cache. */
  cache?: Pick<EngineOptions, 'prefixCaching' | 'cacheOnUpdate' | 'maxNumBatchedTokens' | 'cacheTokens'>;
  topP?: number;
  /** Context compaction: latest turns whose answers of tools stay whole, and what stands for older ones. */
  compaction?: { keepTurns: number; placeholder: string };
  /** A server that generates in the place of our engine. */
  server?: Omit<ServerEngineOptions, 'maxSequences' | 'maxSequenceTokens' | 'fetch'>;
  /** Trajectories carry the experts that each token went to (models with experts only). */
  recordExperts?: boolean;
  /** How often an episode is begun anew after an infrastructure failure. */
  retries: number;
  /** Deadline of one answer of an environment; missing it is an infrastructure failure. */
  environmentTimeoutMs: number;
  /** How often the expert errs (1: the domain's default rate). */
  demonstrationNoise: number;
}

export interface RolloutAssignment {
  tasks: ({ index: number } & Task)[];
  samples: number;
  phase: 'train' | 'validation';
  /** 0 is greedy. */
  temperature: number;
}

export interface RolloutStatus {
  /** Episodes open now. */
  open: number;
  episodes: number;
  tokens: number;
  version: number;
}

/** First word of validation's random keys: the same draws for every run and seed, and never those of a training run (seeds are below 2^31). */
const validationKey = 0x80000001;

export class Rollout {
  readonly #o: RolloutOptions;
  #store!: WeightStore;
  #engine!: GenerationEngine & Pick<Engine, 'dispose'>;
  readonly #chat: Chat;
  readonly #prefix = `${currentActor().name}/${currentActor().incarnation}`;
  #open = 0;
  #episodes = 0;
  #tokens = 0;
  #instances = 0;

  constructor(o: RolloutOptions) {
    this.#o = o;
    this.#chat = dialogueOf(entry(o.environment), o.dialogue ?? { model: null }).chat;
  }

  async start(): Promise<void> {
    const o = this.#o;
    this.#store = await openWeights(o.store);
    if (o.server) {
      this.#engine = new ServerEngine(this.#store, { ...o.server, maxSequences: o.maxSequences, maxSequenceTokens: o.limits.maxTokens });
      return;
    }
    this.#engine = new Engine({
      store: this.#store,
      ...deviceChoice(o.device ?? 'cpu'),
      threads: o.threads,
      maxSequences: o.maxSequences,
      maxSequenceTokens: o.limits.maxTokens,
      ...o.cache,
      recordExperts: o.recordExperts ?? false,
    });
  }

  /** Plays every task `samples` times; the trajectories come by task, then sample. Rejects only where nothing sensible can be returned. */
  async rollout(a: RolloutAssignment): Promise<Trajectory[]> {
    const { signal } = currentActor();
    const episodes: Promise<Trajectory>[] = [];
    for (const { index, seed, options } of a.tasks) {
      const group = `${a.phase === 'train' ? 't' : 'v'}${index}`;
      for (let sample = 0; sample < a.samples; sample++) {
        const task: EpisodeTask = { task: index, sample, group, seed };
        episodes.push(playWithRetries(task, signal, this.#o.retries, (attempt) => this.#play(task, options, a, attempt, signal)));
      }
    }
    return Promise.all(episodes);
  }

  /** Demonstrations `from` to `to` (exclusive) of the run's expert, as ids with a mask; a function of the run's seed alone. */
  async demonstrate(from: number, to: number): Promise<{ ids: Int32Array; mask: Uint8Array; reward: number }[]> {
    const { demonstrate } = entry(this.#o.environment);
    if (!demonstrate) return [];
    const out = [];
    for (let i = from; i < to; i++) {
      // Demonstrations are of training tasks, counted from the far end: GRPO begins with tasks that nobody has shown.
      const d = demonstrate(trainingTask(this.#o.runSeed, 0x7fffffff - i), i, {
        noise: this.#o.demonstrationNoise,
        options: this.#o.environmentOptions,
      });
      out.push({ ...episodeIds(this.#chat, d.messages), reward: d.reward });
      if (i % 16 === 15) await new Promise((next) => setImmediate(next));
    }
    return out;
  }

  status(): RolloutStatus {
    return { open: this.#open, episodes: this.#episodes, tokens: this.#tokens, version: this.#store.current()?.version ?? -1 };
  }

  async stop(): Promise<void> {
    await this.#engine?.dispose();
    this.#store?.close();
  }

  async #play(
    task: EpisodeTask,
    options: Task['options'],
    a: RolloutAssignment,
    attempt: number,
    signal: AbortSignal,
  ): Promise<Trajectory> {
    this.#open++;
    try {
      const key = a.phase === 'train' ? this.#o.runSeed : validationKey;
      const { compaction } = this.#o;
      const { num_hidden_layers, num_experts_per_tok, num_local_experts } = this.#store.config;
      const t = await playEpisode(task, {
        engine: this.#engine,
        environment: this.#remote(task, options, a.phase, key, attempt),
        dialogue: this.#chat,
        limits: this.#o.limits,
        ...(compaction
          ? { compaction: { keepTurns: compaction.keepTurns, shorten: (m) => ({ ...m, content: compaction.placeholder }) } }
          : {}),
        ...(this.#o.recordExperts ? { experts: { each: num_hidden_layers * num_experts_per_tok, wide: num_local_experts >= 255 } } : {}),
        sampling: {
          seed: key,
          temperature: a.temperature,
          ...(this.#o.topK === undefined ? {} : { topK: this.#o.topK }),
          ...(this.#o.minP === undefined ? {} : { minP: this.#o.minP }),
          ...(this.#o.topP === undefined ? {} : { topP: this.#o.topP }),
        },
        signal,
      });
      this.#episodes++;
      this.#tokens += t.ids.length;
      return t;
    } finally {
      this.#open--;
    }
  }

  #remote(task: EpisodeTask, options: Task['options'], phase: string, key: number, attempt: number): RemoteEpisode {
    const { environments, environmentTimeoutMs } = this.#o;
    const handle = environments[(task.task + task.sample + attempt) % environments.length]!;
    const host = withOptions(handle, { timeoutMs: environmentTimeoutMs });
    // Unique over actors and their lives: what closes an abandoned episode late never meets its successor.
    const id = `${this.#prefix}/${phase}/${task.task}/${task.sample}/${this.#instances++}`;
    return {
      reset: () => host.reset(id, { seed: task.seed, ...(options ? { options } : {}), latencyKey: [key, task.task, task.sample] }),
      step: (action) => host.step(id, action),
      close: () => {
        host.close(id).catch(() => {
          // A host that is gone has closed everything.
        });
      },
    };
  }
}

export const RolloutActor = defineActor(import.meta.url, 'RolloutActor', Rollout);
