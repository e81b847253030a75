// Where things go, against references that look at every node.
import fc from 'fast-check';
import t from 'tap';
import { Cluster, type ClusterEvent, type NodeView, type Strategy } from '../../runtime/control/index.ts';
import { clusterOf, placeOf, spawn, up } from './cluster-support.ts';

const RUNS = { seed: 20261130, endOnFailure: true };

// --- policies against a reference

const fits = (node: NodeView, asked: Record<string, number>): boolean =>
  node.state === 'up' && Object.entries(asked).every(([name, amount]) => (node.free[name] ?? 0) >= amount);

/** Integers from 0 to 10000: shares in use, rounded as the cluster rounds. */
function used(node: NodeView, plus: Record<string, number> = {}): number {
  const shares = Object.entries(node.total).map(([name, total]) =>
    Math.round((1 - (node.free[name]! - (plus[name] ?? 0)) / total) * 10_000),
  );
  return Math.max(0, ...shares);
}

function leastUsed(nodes: NodeView[]): NodeView[] {
  const at = new Map(nodes.map((node, i) => [node, i]));
  return [...nodes].sort((a, b) => used(a) - used(b) || a.actors + a.leases - b.actors - b.leases || at.get(a)! - at.get(b)!);
}

/** The nodes among which hybrid may draw. */
function hybridChoice(nodes: NodeView[], asked: Record<string, number>): NodeView[] {
  const k = Math.min(8, Math.max(1, Math.floor(nodes.filter(({ state }) => state === 'up').length * 0.2)));
  const able = nodes.filter((node) => fits(node, asked));
  const kinds =
    asked.gpus === undefined
      ? [able.filter(({ total }) => total.gpus === undefined), able.filter(({ total }) => total.gpus !== undefined)]
      : [able];
  for (const kind of kinds) {
    const half = kind.filter((node) => used(node, asked) <= 5000);
    if (half.length > 0) return half.slice(0, k);
    if (kind.length > 0) return leastUsed(kind).slice(0, k);
  }
  return [];
}

t.test('hybrid and spread choose as a look at every node would', (t) => {
  const node = fc.record({
    cpus: fc.integer({ min: 1, max: 9 }),
    gpus: fc.constantFrom(0, 0, 2, 4),
    memory: fc.constantFrom(64, 128, 1000),
  });
  const step = fc.record({
    what: fc.constantFrom('spawn', 'spawn', 'spawn', 'died', 'up', 'down', 'drain'),
    pick: fc.nat(999),
    node,
    spread: fc.boolean(),
    asked: fc.constantFrom<Record<string, number>>(
      { cpus: 1 },
      { cpus: 0.5 },
      { cpus: 2, memory: 10 },
      { memory: 60 },
      { gpus: 1 },
      { cpus: 1, gpus: 2 },
    ),
  });
  let choices = 0;
  let drawn = 0;
  fc.assert(
    fc.property(
      fc.nat(),
      fc.array(node, { minLength: 1, maxLength: 30, size: 'max' }),
      fc.array(step, { maxLength: 80, size: 'max' }),
      (seed, first, steps) => {
        const cluster = new Cluster({ seed });
        let ids = 0;
        const add = ({ cpus, gpus, memory }: { cpus: number; gpus: number; memory: number }): void => {
          cluster.apply(up(`n${ids++}`, { cpus, memory, ...(gpus === 0 ? {} : { gpus }) }), 0);
        };
        first.forEach(add);
        for (const { what, pick, node, spread, asked } of steps) {
          const nodes = [...cluster.nodes()];
          const some = nodes[pick % Math.max(1, nodes.length)];
          if (what === 'up') add(node);
          else if (what === 'down' || what === 'drain') {
            if (some !== undefined && nodes.length > 3) cluster.apply({ type: `node-${what}`, node: some.node }, 0);
          } else if (what === 'died') {
            const living = [...cluster.actors()].filter((actor) => actor.node !== undefined);
            if (living.length > 0) cluster.apply({ type: 'died', actor: living[pick % living.length]!.actor, incarnation: 1 }, 0);
          } else {
            const actor = ids++;
            const able = nodes.filter((node) => fits(node, asked));
            const allowed = (spread ? leastUsed(able).slice(0, 1) : hybridChoice(nodes, asked)).map(({ node }) => node);
            const place = placeOf(cluster.apply(spawn(actor, asked, { request: { strategy: spread ? 'spread' : 'hybrid' } }), 0));
            if (place === undefined ? allowed.length > 0 : !allowed.includes(place))
              throw new Error(`${JSON.stringify(asked)} went to ${place}, not to one of ${allowed.join(', ')}`);
            if (place === undefined) cluster.apply({ type: 'kill', actor, restart: false }, 0);
            else choices++;
            if (allowed.length > 1 && place !== allowed[0]) drawn++;
          }
        }
      },
    ),
    { ...RUNS, numRuns: 200 },
  );
  t.ok(choices > 2000 && drawn > 300, `${choices} choices, ${drawn} of them not the first`);
  t.end();
});

t.test('an actor that asks for nothing stays with its spawner; others only while its node is at most half used', (t) => {
  const { apply } = clusterOf(up('n0', { cpus: 8 }), up('n1', { cpus: 4 }));
  t.equal(placeOf(apply(spawn(1, { cpus: 2 }, { near: 'n1' }))), 'n1');
  t.equal(placeOf(apply(spawn(2, { cpus: 1 }, { near: 'n1' }))), 'n0');
  t.equal(placeOf(apply(spawn(3, { cpus: 2 }, { request: { strategy: { node: 'n1', soft: false } } }))), 'n1');
  t.equal(placeOf(apply(spawn(4, {}, { near: 'n1' }))), 'n1', 'although n1 is full');
  t.equal(placeOf(apply(spawn(5, { cpus: 1 }, { request: { strategy: { node: 'n1', soft: true } } }))), 'n0');
  t.end();
});

t.test('label selectors', (t) => {
  const { apply, cluster } = clusterOf(
    up('plain', { cpus: 1 }),
    up('a', { cpus: 1 }, { zone: 'a' }),
    up('b', { cpus: 1 }, { zone: 'b', disk: 'hdd' }),
  );
  const where = (actor: number, labels: Record<string, string>): string | undefined => {
    const place = placeOf(apply(spawn(actor, {}, { request: { labels, strategy: 'spread' } })));
    apply({ type: 'kill', actor, restart: false });
    apply({ type: 'died', actor, incarnation: 1 });
    return place;
  };
  t.equal(where(1, { zone: 'a' }), 'a');
  t.equal(where(2, { zone: 'in(b,c)' }), 'b');
  t.equal(where(3, { zone: '!a' }), 'plain', 'a node without the label is not in zone a');
  t.equal(where(4, { zone: '!in( a , b )' }), 'plain');
  t.equal(where(5, { zone: '!in(x)', disk: 'hdd' }), 'b');
  t.equal(where(6, { zone: 'in()' }), undefined);
  t.equal(cluster.actor(6)?.state, 'dead');
  t.end();
});

t.test('GPUs: whole ones by number, parts share one, a part never splits', (t) => {
  const { apply, cluster } = clusterOf({ ...up('n', { gpus: 4 }), gpuIds: [4, 5, 6, 7] } as ClusterEvent);
  const gpus = (actor: number, amount: number): number[] | undefined => {
    apply(spawn(actor, { gpus: amount }));
    return cluster.actor(actor)?.gpus;
  };
  t.same(gpus(1, 0.5), [4]);
  t.same(gpus(2, 2), [5, 6]);
  t.same(gpus(3, 0.3), [4], 'on the one that is shared already');
  t.same(gpus(4, 0.5), [7]);
  t.same(gpus(5, 0.6), [], 'there are 0.7 in all, but no 0.6 of one');
  t.match(cluster.explain({ actor: 5 })?.text, /0\.7 gpus free, but in parts of several/);
  apply({ type: 'died', actor: 2, incarnation: 1 });
  t.same(cluster.actor(5)?.gpus, [5]);
  t.same(gpus(6, 1.25), [5, 6], 'one whole, and a quarter of the fullest that has it');
  t.end();
});

// --- groups

/** Is there an assignment at all? Tries every one. */
function possible(strategy: Strategy, bundles: readonly Record<string, number>[], nodes: readonly Record<string, number>[]): boolean {
  const free = nodes.map((node) => ({ ...node }));
  const chosen: number[] = [];
  const place = (i: number): boolean => {
    if (i === bundles.length) return true;
    for (let n = 0; n < free.length; n++) {
      if (strategy === 'STRICT_PACK' && chosen.length > 0 && chosen[0] !== n) continue;
      if (strategy === 'STRICT_SPREAD' && chosen.includes(n)) continue;
      const entries = Object.entries(bundles[i]!);
      if (!entries.every(([name, amount]) => (free[n]![name] ?? 0) >= amount)) continue;
      for (const [name, amount] of entries) free[n]![name]! -= amount;
      chosen.push(n);
      const done = place(i + 1);
      chosen.pop();
      for (const [name, amount] of entries) free[n]![name]! += amount;
      if (done) return true;
    }
    return false;
  };
  return place(0);
}

t.test('strict strategies find an assignment exactly if there is one; soft ones keep to it where they can', (t) => {
  const total = fc.record({ cpus: fc.integer({ min: 1, max: 4 }), slots: fc.integer({ min: 1, max: 3 }) });
  const bundle = fc.constantFrom<Record<string, number>>(
    { cpus: 1 },
    { cpus: 2 },
    { slots: 1 },
    { cpus: 1, slots: 2 },
    { cpus: 3 },
    { slots: 3 },
  );
  const seen = { STRICT_PACK: [0, 0], STRICT_SPREAD: [0, 0], PACK: [0, 0], SPREAD: [0, 0] };
  fc.assert(
    fc.property(
      fc.array(total, { minLength: 1, maxLength: 4 }),
      fc.array(bundle, { minLength: 1, maxLength: 4 }),
      fc.constantFrom<Strategy>('STRICT_PACK', 'STRICT_SPREAD', 'PACK', 'SPREAD'),
      (nodes, bundles, strategy) => {
        const { cluster, apply } = clusterOf(...nodes.map((node, i) => up(`n${i}`, node)));
        apply({ type: 'group-create', group: 'g', bundles: bundles.map((resources) => ({ resources })), strategy, lifetime: 'detached' });
        const on = cluster.group('g')!.bundles.flatMap(({ node }) => node ?? []);
        const placed = on.length === bundles.length;
        const wanted = possible(strategy, bundles, nodes);
        seen[strategy][wanted ? 1 : 0]!++;
        if (strategy.startsWith('STRICT') && placed !== wanted) throw new Error(`${strategy} is ${placed ? '' : 'not '}placed`);
        if (placed && !wanted) throw new Error('placed where there is no room');
        const strict = possible(`STRICT_${strategy.replace('STRICT_', '') as 'PACK' | 'SPREAD'}`, bundles, nodes);
        if (strict && new Set(on).size !== (strategy.endsWith('PACK') ? 1 : bundles.length)) throw new Error(`${strategy} on ${on}`);
        const why = cluster.explain({ group: 'g' })!;
        if (!placed && strategy.startsWith('STRICT') && why.feasible && bundles.length === 1)
          throw new Error(`${why.text} and yet feasible`);
      },
    ),
    { ...RUNS, numRuns: 2000 },
  );
  for (const [strategy, [no, yes]] of Object.entries(seen)) t.ok(no! > 20 && yes! > 100, `${strategy}: ${yes} possible, ${no} not`);
  t.end();
});
