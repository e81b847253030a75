// The control plane under histories that nobody would write down: whatever happens, in whatever order, these hold.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { Cluster, type ClusterEffect, nodesWanted } from '../../runtime/control/index.ts';
import { clusterOf, spawn, up } from './cluster-support.ts';
import { moves, World } from './cluster-world.ts';

const RUNS = { seed: 20261130, endOnFailure: true };

t.test('invariants after every event, and nothing is left at the end', (t) => {
  let events = 0;
  fc.assert(
    fc.property(fc.nat(), moves(120), (seed, script) => {
      const world = new World(seed);
      for (const move of script) {
        const event = world.eventOf(move);
        if (event === undefined) continue;
        world.apply(event, move.after);
        world.check();
        events++;
      }
      world.finish();
    }),
    { ...RUNS, numRuns: 300 },
  );
  t.ok(events > 5000, `${events} events`);
  t.end();
});

/** Effects that only say again what is under way. */
const AGAIN = new Set<ClusterEffect['type']>(['start', 'terminate', 'prepare', 'commit', 'release', 'exists', 'refused']);

t.test('every event applied twice has the effect of once', (t) => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(fc.nat(), moves(100), (seed, script) => {
      const world = new World(seed);
      for (const move of script) {
        const event = world.eventOf(move);
        if (event === undefined) continue;
        world.apply(event, move.after);
        seen.add(event.type);
        const before = JSON.stringify(world.cluster.snapshot());
        const again = world.apply(event);
        if (JSON.stringify(world.cluster.snapshot()) !== before)
          throw new Error(`${JSON.stringify(event)} changed something the second time`);
        const more = again.find((effect) => !AGAIN.has(effect.type));
        if (more !== undefined) throw new Error(`${JSON.stringify(event)} led to ${JSON.stringify(more)} the second time`);
      }
    }),
    { ...RUNS, numRuns: 150 },
  );
  t.equal(seen.size, 17, `all kinds of events: ${[...seen].sort().join(' ')}`);
  t.end();
});

t.test('a restored cluster is the same, byte by byte, and goes on in the same way', (t) => {
  fc.assert(
    fc.property(fc.nat(), moves(100), fc.nat(100), (seed, script, cut) => {
      // Enough nodes that hybrid draws among several.
      const world = new World(seed, 12);
      script.forEach((move) => {
        const event = world.eventOf(move);
        if (event !== undefined) world.apply(event, move.after);
      });
      // From a snapshot in the middle and the journal after it.
      const replayed = new Cluster({ seed, remember: 20 });
      let restored: Cluster | undefined;
      world.journal.forEach(([now, event], i) => {
        if (i === Math.floor((cut / 100) * world.journal.length)) {
          const text = JSON.stringify(replayed.snapshot());
          restored = Cluster.restore(JSON.parse(text));
          if (JSON.stringify(restored.snapshot()) !== text) throw new Error('restored otherwise');
          if (JSON.stringify(restored.outstanding()) !== JSON.stringify(replayed.outstanding()))
            throw new Error('other things are under way');
        }
        const expected = JSON.stringify(world.effects[i]);
        if (JSON.stringify(replayed.apply(event, now)) !== expected) throw new Error('the same events, other effects');
        if (restored !== undefined && JSON.stringify(restored.apply(event, now)) !== expected)
          throw new Error('restored, and went on otherwise');
      });
      const end = JSON.stringify(world.cluster.snapshot());
      if (restored !== undefined && JSON.stringify(restored.snapshot()) !== end) throw new Error('restored, and ended otherwise');
    }),
    { ...RUNS, numRuns: 150 },
  );
  t.end();
});

t.test('demand: what waits, and nodes enough for it but no more than twice what the sums ask for', (t) => {
  const kind = { resources: { cpus: 8, gpus: 2 } };
  const request = fc.record({ cpus: fc.integer({ min: 0, max: 10 }), gpus: fc.integer({ min: 0, max: 3 }) });
  fc.assert(
    fc.property(fc.array(request, { maxLength: 30 }), (requests) => {
      const { cluster, apply } = clusterOf();
      for (const [i, { cpus, gpus }] of requests.entries()) apply(spawn(i, { cpus, gpus }));
      const demand = cluster.demand();
      assert.equal(
        demand.reduce((sum, { count }) => sum + count, 0),
        requests.length,
        'all of it is listed',
      );
      const possible = requests.filter(({ cpus, gpus }) => cpus <= 8 && gpus <= 2);
      const sum = (name: 'cpus' | 'gpus'): number => possible.reduce((all, each) => all + each[name], 0);
      const least = Math.ceil(Math.max(sum('cpus') / 8, sum('gpus') / 2, possible.length > 0 ? 1 : 0));
      const wanted = nodesWanted(demand, kind, 1000);
      assert.ok(
        wanted >= least && wanted <= Math.ceil(2 * (sum('cpus') / 8 + sum('gpus') / 2) + 1),
        `${wanted} nodes, ${least} at the least`,
      );
      assert.equal(nodesWanted(demand, kind, 2), Math.min(2, wanted));
    }),
    { seed: 11, numRuns: 300 },
  );
  const { cluster, apply } = clusterOf();
  apply(spawn(1, { cpus: 1 }, { request: { labels: { zone: 'a' } } }));
  apply(spawn(2, { cpus: 1 }, { request: { strategy: { node: 'there', soft: false } } }));
  apply({
    type: 'group-create',
    group: 'g',
    bundles: [{ resources: { cpus: 8 } }, { resources: { cpus: 8 } }],
    strategy: 'PACK',
    lifetime: 'detached',
  });
  apply(spawn(3, { cpus: 8 }, { request: { group: 'g', bundle: 0 } }));
  const demand = cluster.demand();
  t.equal(demand.length, 4, 'what draws from a group waits for the group');
  t.equal(nodesWanted(demand, kind, 10), 2, 'neither another zone nor another node would help the first two');
  t.equal(nodesWanted(demand, { ...kind, labels: { zone: 'a' } }, 10), 3);
  apply(up('n', { cpus: 8 }, { zone: 'a' }));
  t.equal(nodesWanted(cluster.demand(), kind, 10), 2, 'the group takes both at once');
  t.end();
});
