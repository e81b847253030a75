// The control plane under histories that nobody would write down: whatever happens, in whatever order, these hold.
import fc from 'fast-check';
import t from 'tap';
import { Cluster, type ClusterEffect } from '../../runtime/control/index.ts';
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
