// Suite `control`: decisions a second of the control plane as a pure state machine, without sockets, disks or processes, on simulated nodes.
// A decision is an event with all that follows from it: an actor placed, an actor lost and the next one put in its place, a group agreed.
import { median } from '../../actors/index.ts';
import { type Cluster, type ClusterEffect, controlPlane, type SpawnEvent } from '../../runtime/index.ts';
import { judged, type Row, type Suite, type SuiteContext } from './rows.ts';

/** The bars that the project set itself. */
const BAR_PER_S = 50_000;
const BAR_COST = 3;
const ACTORS_PER_NODE = 10;
const SMALL = 100;
const LARGE = 10_000;
/** Decisions that warm the compiler up before anything is timed. */
const WARM_UP = 20_000;

const control = await controlPlane();

function clusterOf(nodes: number): Cluster {
  const cluster = new control.Cluster({ seed: 1 });
  for (let i = 0; i < nodes; i++) {
    const gpus: Record<string, number> = i % 10 === 9 ? { gpus: 8 } : {};
    const total = { cpus: 16, memory: 64 * 2 ** 30 + i * 4096, ...gpus };
    cluster.apply({ type: 'node-up', node: `node-${i}`, total, labels: { zone: 'abc'[i % 3]!, rack: `r${i % 40}` } }, 0);
  }
  return cluster;
}

/** Of every ten actors six are packed, two spread, one is bound to a zone and one wants part of a GPU. */
function spawnOf(actor: number, cpus = [0.5, 1, 2][actor % 3]!): SpawnEvent {
  const kind = actor % 10;
  return {
    type: 'spawn',
    actor,
    name: `actor-${actor}`,
    definition: 'bench',
    request: {
      resources: kind === 9 ? { cpus: 0.5, gpus: 0.5 } : { cpus },
      labels: kind === 8 ? { zone: 'a' } : {},
      strategy: kind === 6 || kind === 7 ? 'spread' : 'hybrid',
    },
    policy: { maxRestarts: 0, windowMs: 60_000, backoffMs: 100, backoffMaxMs: 30_000 },
    lifetime: 'owned',
    owner: 'driver/bench',
    near: 'node-0',
    getIfExists: false,
  };
}

/** Microseconds a decision, placing ten actors a node on an empty cluster. */
function place(nodes: number): number {
  const cluster = clusterOf(nodes);
  const spawns = Array.from({ length: nodes * ACTORS_PER_NODE }, (_, i) => spawnOf(i));
  let placed = 0;
  const started = performance.now();
  for (const spawn of spawns) placed += starts(cluster.apply(spawn, 0));
  const us = ((performance.now() - started) * 1000) / spawns.length;
  if (placed !== spawns.length) throw new Error(`${placed} of ${spawns.length} actors were placed`);
  return us;
}

const starts = (effects: readonly ClusterEffect[]): number => effects.filter(({ type }) => type === 'start').length;

function warmUp(): void {
  for (let done = 0; done < WARM_UP; done += SMALL * ACTORS_PER_NODE) place(SMALL);
}

const rounds = (n: number, nodes: number): number[] => Array.from({ length: n }, () => place(nodes));

async function smallRow(context: SuiteContext): Promise<void> {
  warmUp();
  const us = median(rounds(context.quick ? 10 : 300, SMALL));
  const details = { nodes: SMALL, actors: SMALL * ACTORS_PER_NODE, us_per_decision: us };
  context.report(
    judged({ suite: 'control', row: 'control.place.100', unit: 'decisions/s', ours: 1e6 / us, details }, { least: BAR_PER_S }),
  );
}

/** Rounds of both sizes take turns, so that they meet the same machine; of each the median. */
async function largeRows(context: SuiteContext): Promise<void> {
  warmUp();
  const small: number[] = [];
  const large: number[] = [];
  for (let i = 0; i < (context.quick ? 1 : 5); i++) {
    small.push(...rounds(LARGE / SMALL / 4, SMALL));
    large.push(place(LARGE));
  }
  const us = median(large);
  const details = { nodes: LARGE, actors: LARGE * ACTORS_PER_NODE, us_per_decision: us, us_per_decision_100: median(small) };
  context.report(
    judged({ suite: 'control', row: 'control.place.10000', unit: 'decisions/s', ours: 1e6 / us, details }, { least: BAR_PER_S }),
  );
  const cost: Row = { suite: 'control', row: 'control.place.cost', unit: 'times', ours: us / median(small), details };
  context.report(judged(cost, { most: BAR_COST }));
}

/** A full cluster with actors waiting: one dies, the room goes to the one of its size that waited longest. A decision is both. */
async function churnRow(context: SuiteContext): Promise<void> {
  const cluster = clusterOf(LARGE);
  const living: number[] = [];
  let next = 0;
  const spawn = (): void => {
    const actor = next++;
    for (const effect of cluster.apply(spawnOf(actor, 2), 0)) if (effect.type === 'start') living.push(effect.actor);
  };
  while (living.length + 2000 > next) spawn();
  const decisions = context.quick ? 5000 : 100_000;
  let placed = 0;
  const started = performance.now();
  for (let i = 0; i < decisions; i++) {
    const at = (i * 7919) % living.length;
    const dead = living[at]!;
    living[at] = living.at(-1)!;
    living.pop();
    cluster.apply({ type: 'kill', actor: dead, restart: false }, i);
    for (const effect of cluster.apply({ type: 'died', actor: dead, incarnation: 1 }, i)) {
      if (effect.type !== 'start') continue;
      living.push(effect.actor);
      placed++;
    }
    spawn();
  }
  const us = ((performance.now() - started) * 1000) / decisions;
  const details = { nodes: LARGE, living: living.length, waiting: next - decisions - living.length, placed, us_per_decision: us };
  context.report({ suite: 'control', row: 'control.churn.10000', unit: 'decisions/s', ours: 1e6 / us, details });
}

/** A placement group of four bundles, each on a node of its own: created, agreed by its nodes, removed. */
async function groupRow(context: SuiteContext): Promise<void> {
  const cluster = clusterOf(LARGE);
  const bundles = Array.from({ length: 4 }, () => ({ resources: { cpus: 2 } }));
  const rounds = context.quick ? 1000 : 20_000;
  let created = 0;
  const started = performance.now();
  for (let i = 0; i < rounds; i++) {
    const group = `group-${i}`;
    const asked = cluster.apply(
      { type: 'group-create', group, bundles, strategy: 'STRICT_SPREAD', lifetime: 'owned', owner: 'driver/bench' },
      i,
    );
    for (const effect of asked) {
      if (effect.type !== 'prepare') continue;
      const { attempt, node } = effect;
      created += cluster.apply({ type: 'prepared', group, attempt, node, ok: true }, i).some(({ type }) => type === 'commit') ? 1 : 0;
    }
    cluster.apply({ type: 'group-remove', group }, i);
  }
  const us = ((performance.now() - started) * 1000) / rounds;
  if (created !== rounds) throw new Error(`${created} of ${rounds} groups were created`);
  const details = { nodes: LARGE, bundles: bundles.length, us_per_group: us };
  context.report({ suite: 'control', row: 'control.group.10000', unit: 'groups/s', ours: 1e6 / us, details });
}

export const controlSuite: Suite = {
  'control.place.100': smallRow,
  'control.place.10000': largeRows,
  'control.churn.10000': churnRow,
  'control.group.10000': groupRow,
};
