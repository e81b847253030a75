/** The actors of a run: how each is started, what it is called, and what is written down about it. */
import { availableParallelism } from 'node:os';
import { pathToFileURL } from 'node:url';
import type { StoreAddress, WeightStore } from '../../kernels/index.ts';
import { type ActorHandle, onActorChange, ready, spawn, withOptions } from '../../runtime/index.ts';
import { EnvironmentActor } from '../environment/index.ts';
import { ReferenceActor } from '../reference/index.ts';
import { type DialogueOptions, RolloutActor } from '../rollout/index.ts';
import { TrainerActor } from '../trainer/index.ts';
import type { TrainingConfig } from './config.ts';
import { type ClusterNode, dealOut } from './deal.ts';
import type { Hosts } from './hosts.ts';
import { type Placement, place } from './placement.ts';
import type { RolloutWorker } from './pool.ts';
import type { ProgressListener } from './progress.ts';
import type { Recorder } from './recorder.ts';
import type { ActorRecord } from './run-folder.ts';
import { deviceOf, environmentOptions, environmentTimeoutMs, recipeOf, rolloutServer } from './settings.ts';
import { TrainerGroup } from './trainer-group.ts';

/** Deaths within a minute that an actor is restarted after. */
const maxRestarts = 8;
function supervision(config: TrainingConfig) {
  const seconds = config.trainer.unresponsive_timeout_s;
  return { maxRestarts, restartWindowMs: 60_000, restartBackoffMs: 20, ...(seconds === null ? {} : { unresponsiveMs: seconds * 1000 }) };
}
/** Times an episode is begun anew before it is given up as `error`. */
const episodeRetries = 12;

export interface Cast {
  placement: Placement;
  environments: ActorHandle<typeof EnvironmentActor>[];
  rollouts: ActorHandle<typeof RolloutActor>[];
  trainer: TrainerGroup;
  hosts: Hosts;
  casting: Casting;
}

/** What the actors of a run are made with. */
export interface Casting {
  config: TrainingConfig;
  placement: Placement;
  store: StoreAddress;
  hosts: Hosts;
  dialogue: DialogueOptions;
}

export function spawnCast(c: Casting): Cast {
  const environments = spawnEnvironments(c);
  return {
    placement: c.placement,
    environments,
    rollouts: spawnRollouts(c, environments),
    trainer: spawnTrainers(c),
    hosts: c.hosts,
    casting: c,
  };
}

/** Each actor is a process of its own: what the module registers has to be registered in each. */
const importsOf = ({ env }: TrainingConfig): string[] => (env.module === null ? [] : [pathToFileURL(env.module).href]);

type Settled = Omit<Casting, 'store' | 'dialogue'>;
type Where = ReturnType<Hosts['deal']['away']>;

export function spawnEnvironments(c: Settled): Cast['environments'] {
  return Array.from({ length: c.placement.environmentActors }, (_, i) => spawnEnvironment(c, i, c.hosts.deal.away(i)));
}

export function spawnEnvironment({ config }: Settled, i: number, where: Where): ActorHandle<typeof EnvironmentActor> {
  return spawn(EnvironmentActor, {
    name: `environment-${i}`,
    args: [{ environment: config.env.name, options: environmentOptions(config), latency: config.env.latency, reward: config.reward }],
    maxConcurrency: 1 << 20,
    imports: importsOf(config),
    ...where,
    ...supervision(config),
  });
}

export function spawnRollouts(c: Casting, environments: Cast['environments']): Cast['rollouts'] {
  return Array.from({ length: c.placement.rolloutActors }, (_, i) => spawnRollout(c, i, c.hosts.deal.away(i), environments));
}

export function spawnRollout(
  { config, placement, hosts, dialogue }: Casting,
  i: number,
  where: Where,
  environments: Cast['environments'],
): ActorHandle<typeof RolloutActor> {
  const { rollout } = config;
  const { context_compaction: compaction } = rollout;
  const server = rolloutServer(config);
  const name = `rollout-${i}`;
  const handle = spawn(RolloutActor, {
    name,
    threads: placement.rolloutThreads,
    args: [
      {
        store: hosts.store,
        threads: placement.rolloutThreads,
        device: deviceOf(rollout, i),
        maxSequences: placement.sequences,
        limits: { maxTokens: rollout.max_model_len, maxTokensPerTurn: rollout.max_tokens_per_turn, maxTurns: config.env.max_turns },
        ...(compaction.enable ? { compaction: { keepTurns: compaction.keep_turns, placeholder: compaction.placeholder } } : {}),
        environment: config.env.name,
        dialogue,
        recordExperts: config.actor.router_replay.mode === 'R3',
        environmentOptions: environmentOptions(config),
        environments,
        runSeed: config.seed,
        ...(rollout.top_k > 0 ? { topK: rollout.top_k } : {}),
        ...(rollout.min_p > 0 ? { minP: rollout.min_p } : {}),
        cache: {
          prefixCaching: rollout.enable_prefix_caching,
          cacheOnUpdate: rollout.kv_cache_on_update,
          ...(rollout.max_num_batched_tokens === null ? {} : { maxNumBatchedTokens: rollout.max_num_batched_tokens }),
          ...(rollout.kv_cache_tokens === null ? {} : { cacheTokens: rollout.kv_cache_tokens }),
        },
        ...(rollout.top_p < 1 ? { topP: rollout.top_p } : {}),
        ...(server === undefined ? {} : { server }),
        retries: episodeRetries,
        environmentTimeoutMs,
        demonstrationNoise: config.sft.noise,
      },
    ],
    maxConcurrency: 1 << 20,
    imports: importsOf(config),
    ...where,
    ...supervision(config),
  });
  hosts.watch({ name, handle });
  return handle;
}

/** Name of the trainer of a rank: the first is the one that writes. */
const trainerName = (rank: number): string => (rank === 0 ? 'trainer' : `trainer-${rank}`);

export function spawnTrainers({ config, placement, store, hosts }: Omit<Casting, 'dialogue'>): TrainerGroup {
  const { trainers: members, trainerThreads: threads } = placement;
  const trainers = Array.from({ length: members }, (_, rank) =>
    spawn(TrainerActor, {
      name: trainerName(rank),
      threads,
      args: [
        {
          store,
          threads,
          device: deviceOf(config.actor, rank),
          recipe: recipeOf(config),
          fenced: true,
          ...(members > 1 ? { shard: { rank, members } } : {}),
        },
      ],
      imports: importsOf(config),
      ...hosts.deal.home,
      ...supervision(config),
    }),
  );
  return new TrainerGroup(trainers);
}

/** The reference needs its weights first, so it comes after the warm start. */
export function spawnReference(c: Omit<Casting, 'dialogue'>, folder: string): ActorHandle<typeof ReferenceActor> | undefined {
  const { config, store } = c;
  const threads = c.placement.referenceThreads;
  if (threads === undefined) return undefined;
  return spawn(ReferenceActor, {
    name: 'reference',
    threads,
    ...c.hosts.deal.home,
    args: [
      {
        folder,
        policy: store,
        threads,
        device: deviceOf(config.reference, 0),
        temperature: config.rollout.temperature,
        microBatchTokens: config.actor.ppo_micro_batch_size_tokens,
      },
    ],
    ...supervision(config),
  });
}

/** All of them answer. */
export async function castReady({ environments = [], rollouts = [], trainer }: Partial<Cast>): Promise<void> {
  await Promise.all([...environments, ...rollouts, ...(trainer?.members ?? [])].map((h) => ready(h, { timeoutMs: 60_000 })));
}

export const rolloutWorkers = ({ rollouts, hosts }: Pick<Cast, 'rollouts' | 'hosts'>): RolloutWorker[] =>
  rollouts.map((handle, i) => rolloutWorker(hosts, i, handle));

export function rolloutWorker(hosts: Hosts, i: number, handle: ActorHandle<typeof RolloutActor>): RolloutWorker {
  const name = `rollout-${i}`;
  return {
    name,
    async rollout(assignment, signal) {
      if (hosts.several) await hosts.caughtUp(name);
      return withOptions(handle, { signal }).rollout(assignment);
    },
  };
}

/** For actors.json. `version`: what the store holds now, which every live engine takes at its next step. */
export function actorRecords(hosts: Pick<Hosts, 'actors'>, version: number | undefined): ActorRecord[] {
  return hosts.actors().map((a) => ({
    name: a.name,
    kind: a.kind,
    pid: a.pid,
    incarnation: a.incarnation,
    state: a.state,
    restarts: a.restarts,
    ...(version !== undefined && (a.name.startsWith('rollout-') || /^trainer(-\d+)?$/.test(a.name)) ? { version } : {}),
  }));
}

/** Keeps actors.json, and says when an actor was lost. Hands back what ends it. */
export function watchActors(o: {
  hosts: Pick<Hosts, 'actors'>;
  recorder: Recorder;
  store: WeightStore;
  progress: ProgressListener;
  signal: AbortSignal;
}): () => void {
  const { hosts, recorder, store, progress, signal } = o;
  const write = () => {
    const actors = actorRecords(hosts, store.current()?.version);
    recorder.actors(actors);
    progress({ kind: 'actors', states: actors.map(({ name, state }) => ({ name, state })) });
  };
  const warn = (text: string) => progress({ kind: 'note', level: 'warning', text });
  const unwatch = onActorChange((a) => {
    write();
    if (a.state === 'restarting') warn(`${a.name} was lost (${a.cause ?? 'unknown cause'}) and is restarted`);
    if (a.state === 'dead' && a.cause !== undefined && !signal.aborted) warn(`${a.name} is dead: ${a.cause}`);
  });
  write();
  return unwatch;
}

/** One actor that a run would start. */
export interface PlannedActor {
  name: string;
  kind: string;
  isolation: string;
  threads: number;
  /** What its engine computes on; none in those without one. */
  device?: string;
  /** What it asks of its node, and a clause that says why. */
  labels?: Record<string, string>;
  strategy?: { node: string; soft: boolean };
  why: string;
}

/** What a run with these settings would start; starts nothing. `over`: the nodes of its cluster, and which of their hosts is this one. */
export function planPlacement(config: TrainingConfig, over?: { home: string; nodes: readonly ClusterNode[] }): PlannedActor[] {
  const p = place(config, availableParallelism());
  const deal = over === undefined ? undefined : dealOut(over.home, over.nodes, { colocated: config.trainer.placement === 'colocated' });
  const shared = p.separate ? 'cores of its own side: half for learning, half for rollouts' : 'shares the cores with the others';
  const many = (n: number, name: string, kind: string, threads: number, on?: { device: readonly string[] }): PlannedActor[] =>
    Array.from({ length: n }, (_, i) => {
      const away = deal?.away(i) ?? {};
      const why =
        away.strategy === undefined
          ? shared
          : `${i + 1} of ${n}, dealt out over the nodes of ${config.trainer.placement === 'colocated' ? 'all' : 'other'} hosts`;
      return { name: `${name}-${i}`, kind, isolation: 'process', threads, ...(on && { device: deviceOf(on, i) }), ...away, why };
    });
  const home = (name: string, kind: string, threads: number, device: string): PlannedActor => {
    const why = over !== undefined && over.nodes.length > 0 ? 'on the host of the weights' : shared;
    return { name, kind, isolation: 'process', threads, device, ...deal?.home, why };
  };
  return [
    { name: 'driver', kind: 'driver', isolation: 'this process', threads: 1, why: 'it holds the weights' },
    ...many(p.environmentActors, 'environment', 'EnvironmentActor', 1),
    ...many(p.rolloutActors, 'rollout', 'RolloutActor', p.rolloutThreads, config.rollout),
    ...Array.from({ length: p.trainers }, (_, rank) =>
      home(trainerName(rank), 'TrainerActor', p.trainerThreads, deviceOf(config.actor, rank)),
    ),
    ...(p.referenceThreads === undefined ? [] : [home('reference', 'ReferenceActor', p.referenceThreads, deviceOf(config.reference, 0))]),
  ];
}
