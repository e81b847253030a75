// Groups that live and die together, collectives, and placement groups, while their members end in every way there is: what they promise
// holds, and everything that was reserved comes back. SINKFLEX_TEST_RUNS=200: longer.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import {
  type ActorHandle,
  createCollective,
  get,
  init,
  joinHead,
  kill,
  listActors,
  listGroups,
  listNodes,
  type PlacementGroup,
  placementGroup,
  type RunningHead,
  ready,
  shutdown,
  spawn,
  spawnGroup,
  startHead,
} from '../../runtime/index.ts';
import { lookUntil } from '../until.ts';
import { type End, Rank } from './fixtures/mortal.ts';
import { sharedHere } from './fixtures/objects.ts';
import { Placed } from './fixtures/owners.ts';
import { holdings } from './fixtures/processes.ts';

// As long as it was asked to be.
t.setTimeout(600_000 + 1000 * Number(process.env.SINKFLEX_TEST_RUNS ?? 0));
// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const folder = mkdtempSync(join(tmpdir(), 'sf-g-'));
let head: RunningHead;
t.before(async () => {
  head = await startHead({ folder });
  await Promise.all(
    ['a', 'b', 'c'].map((node) => joinHead({ address: folder, node, cpus: 2, resources: { slot: 2 }, onOutput: () => {} })),
  );
  await init({ address: folder, onOutput: () => {} });
});
t.teardown(async () => {
  await shutdown();
  await head.close();
  rmSync(folder, { recursive: true, force: true });
});

const times = (usual: number): number => Math.ceil((usual * Number(process.env.SINKFLEX_TEST_RUNS ?? 20)) / 20);
const ignore = (ref: PromiseLike<unknown>): void => void ref.then(undefined, () => {});

async function within<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Everything that was reserved is back. */
async function allFree(): Promise<void> {
  const taken = async (): Promise<string> =>
    JSON.stringify(
      (await listNodes()).filter((node) => node.actors + node.leases > 0 || JSON.stringify(node.free) !== JSON.stringify(node.total)),
    );
  const left = await lookUntil(taken, (seen) => seen === '[]');
  if (left !== '[]') throw new Error(`still taken: ${left}`);
}

// --- one for all

type GroupStep = { do: 'tell' } | { do: 'end' | 'two' | 'early'; rank: number; how: End };
const SIZE = 3;
const how = fc.constantFrom<End>('exit', 'uncaught', 'unhandled');
const groupStep: fc.Arbitrary<GroupStep> = fc.oneof(
  fc.constant({ do: 'tell' as const }),
  fc.record({ do: fc.constantFrom('end' as const, 'two' as const, 'early' as const), rank: fc.nat(SIZE - 1), how }),
);

async function playGroup(steps: GroupStep[], maxRestarts: number, lateMs: number, isolation: 'thread' | 'process'): Promise<void> {
  const group = spawnGroup(Rank, SIZE, {
    isolation,
    // The last one comes back late, so that the others may end again before all are back.
    args: (rank) => [rank === SIZE - 1 ? lateMs : 0],
    supervision: 'one-for-all',
    maxRestarts,
    restartBackoffMs: 0,
    cpus: 0.5,
  });
  /** What all were told since they were made together. */
  let told: number[] = [];
  let next = 0;
  let deaths = 0;
  const end = async (rank: number, way: End): Promise<void> => {
    deaths++;
    await group
      .at(rank % SIZE)
      .end(way)
      .then(undefined, () => {});
    told = [];
  };
  const check = async (): Promise<void> => {
    await group.ready();
    for (const list of await group.call.told())
      if (JSON.stringify(list) !== JSON.stringify(told)) throw new Error(`a member was told ${list} since all were made, not ${told}`);
  };
  try {
    for (const step of steps) {
      if (step.do === 'tell') {
        await check();
        told.push(++next);
        await group.call.tell(next);
      } else {
        const rank = step.do === 'early' ? 0 : step.rank;
        await Promise.all([end(rank, step.how), ...(step.do === 'two' ? [end(step.rank + 1, step.how)] : [])]);
        if (step.do !== 'early') continue;
        // One that is back already is told something, before another that is back ends.
        await Promise.all([group.at(0).tell(-1), group.at(1).tell(-1)]);
        await end(0, step.how);
        await check();
      }
    }
    await check();
  } catch (error) {
    // Only a spent budget is a reason.
    if (!/RANK_FAILED|ACTOR_/.test((error as { code?: string }).code ?? '') || deaths <= maxRestarts) throw error;
  } finally {
    await group.kill();
  }
}

t.test('one-for-all: no member outlives another', async () => {
  for (const [isolation, numRuns] of [
    ['thread', times(8)],
    ['process', times(1)],
  ] as const)
    await fc.assert(
      fc.asyncProperty(
        fc.array(groupStep, { minLength: 2, maxLength: 5 }),
        fc.constantFrom(0, 3, 20, 20),
        fc.constantFrom(0, 120),
        (steps, maxRestarts, lateMs) => within(20_000, JSON.stringify(steps), playGroup(steps, maxRestarts, lateMs, isolation)),
      ),
      { numRuns, endOnFailure: true, seed: 11 },
    );
  await allFree();
});

// --- collectives

t.test('collectives: an operation ends well for all who finish it, or for none', async (t) => {
  const isolations = ['process', 'thread', 'shared'] as const;
  const members: ActorHandle<typeof Rank>[] = [];
  const member = (rank: number): ActorHandle<typeof Rank> =>
    spawn(Rank, { isolation: isolations[rank % 3]!, maxRestarts: Number.POSITIVE_INFINITY, restartBackoffMs: 0, maxConcurrency: 2 });
  for (let rank = 0; rank < 4; rank++) members.push(member(rank));
  await Promise.all(members.map((each) => ready(each)));
  const play = async (victim: number, lastRound: number, ends: End | 'leave' | 'kill', floats: number): Promise<void> => {
    const group = createCollective(members.length, { chunkBytes: 4096 });
    await get(members.map((each, rank) => each.join(group, rank)));
    const inOne = new Set(members.map((_, rank) => rank).filter((rank) => isolations[rank % 3] === 'shared'));
    const outcomes = members.map((each, rank) =>
      each
        .work(rank, floats, rank === victim && ends !== 'kill' ? lastRound : -1, rank === victim && ends !== 'kill' ? ends : 'answer')
        .then(
          (value) => value,
          (error: unknown) => ({ rounds: -1, code: (error as { code: string }).code }),
        ),
    );
    if (ends === 'kill') {
      for (let i = 0; i < lastRound; i++) await new Promise((resolve) => setImmediate(resolve));
      await kill(members[victim]!, { restart: true });
    }
    const all = await Promise.all(outcomes);
    const survivors = all.filter(({ rounds }, rank) => rounds >= 0 && rank !== victim);
    const say = (what: string): Error => new Error(`${what}: ${JSON.stringify(all)}`);
    for (const { code } of survivors) if (code !== 'SINKFLEX_COLLECTIVE_BROKEN') throw say('broken for another reason');
    if (new Set(survivors.map(({ rounds }) => rounds)).size > 1) throw say('an operation ended well for some');
    for (const [rank, { rounds, code }] of all.entries())
      if (rounds < 0 && rank !== victim && !(inOne.has(rank) && inOne.has(victim))) throw say(`rank ${rank} ended with ${code}`);
    if (ends !== 'kill' && survivors.some(({ rounds }) => rounds !== lastRound)) throw say(`not ${lastRound} rounds`);
  };
  await play(3, 2, 'leave', 100);
  const held = async (): Promise<{ maps: number; descriptors: number }> => {
    const { maps, descriptors, blocks } = await holdings();
    return { maps: maps + sharedHere().maps, descriptors: descriptors + blocks };
  };
  const before = await held();
  await fc.assert(
    fc.asyncProperty(
      fc.nat(members.length - 1),
      fc.nat(20),
      fc.constantFrom<End | 'leave' | 'kill'>('exit', 'uncaught', 'unhandled', 'leave', 'kill'),
      fc.constantFrom(1, 100, 5000),
      (victim, lastRound, ends, floats) =>
        within(
          20_000,
          `${victim} ${lastRound} ${ends}`,
          play(victim, lastRound, ends === 'exit' && isolations[victim % 3] === 'process' ? 'signal' : ends, floats),
        ),
    ),
    { numRuns: times(12), endOnFailure: true, seed: 5 },
  );
  await Promise.all(members.map((each) => kill(each)));
  const after = await held();
  t.ok(after.maps <= before.maps + 4, `maps ${before.maps} -> ${after.maps}`);
  t.ok(after.descriptors <= before.descriptors + 4, `descriptors ${before.descriptors} -> ${after.descriptors}`);
});

// --- placement groups

interface PlacementStep {
  do: 'group' | 'inside' | 'outside' | 'owner' | 'exit' | 'kill' | 'remove' | 'pause';
  which: number;
  strategy: 'PACK' | 'SPREAD' | 'STRICT_PACK' | 'STRICT_SPREAD';
  bundles: number[];
  isolation: 'thread' | 'shared';
}
const placementStep: fc.Arbitrary<PlacementStep> = fc.record({
  do: fc.constantFrom('group', 'group', 'inside', 'inside', 'outside', 'owner', 'exit', 'kill', 'remove', 'pause'),
  which: fc.nat(100),
  strategy: fc.constantFrom('PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'),
  bundles: fc.array(fc.constantFrom(0.5, 1, 2), { minLength: 1, maxLength: 3 }),
  isolation: fc.constantFrom('thread', 'thread', 'shared'),
});

async function playPlacement(steps: PlacementStep[]): Promise<void> {
  const groups: { group: PlacementGroup; bundles: number }[] = [];
  const actors: ActorHandle<typeof Rank>[] = [];
  const owners: ActorHandle<typeof Placed>[] = [];
  const one = <T>(list: T[], which: number): T | undefined => list[which % Math.max(1, list.length)];
  for (const { do: what, which, strategy, bundles, isolation } of steps) {
    const group = one(groups, which);
    const actor = one(actors, which);
    if (what === 'group') {
      const made = placementGroup(
        bundles.map((cpus) => ({ cpus, resources: { slot: 0.5 } })),
        { strategy },
      );
      ignore(made.ready());
      groups.push({ group: made, bundles: bundles.length });
    } else if (what === 'inside' && group !== undefined)
      actors.push(
        spawn(Rank, {
          isolation,
          cpus: 0.5,
          placementGroup: group.group,
          bundle: which % group.bundles,
          maxRestarts: which % 3,
          restartBackoffMs: 0,
        }),
      );
    else if (what === 'outside')
      actors.push(spawn(Rank, { isolation, cpus: 0.5, resources: { slot: 0.5 }, maxRestarts: which % 2, restartBackoffMs: 0 }));
    else if (what === 'owner') {
      const owner = spawn(Placed, { isolation: 'thread', maxRestarts: 1, restartBackoffMs: 0 });
      owners.push(owner);
      ignore(owner.child());
      ignore(owner.group(0.5));
    } else if (what === 'exit' && actor !== undefined) ignore(actor.end('exit'));
    else if (what === 'kill' && actor !== undefined) ignore(kill(actor, { restart: which % 2 === 0 }));
    else if (what === 'kill' && owners.length > 0) ignore(kill(one(owners, which)!, { restart: which % 2 === 0 }));
    else if (what === 'remove' && group !== undefined) {
      groups.splice(groups.indexOf(group), 1);
      await group.group.remove();
    } else if (what === 'pause')
      await Promise.race([
        ...actors.map((each) => each.told().then(undefined, () => [])),
        new Promise((resolve) => setTimeout(resolve, 20)),
      ]);
    // At no time is more taken than there is.
    for (const { node, free } of await listNodes())
      for (const [name, amount] of Object.entries(free)) if (amount < 0) throw new Error(`node ${node} has ${amount} ${name} free`);
  }
  await Promise.all([...actors, ...owners].map((each) => kill(each)));
  await Promise.all(groups.map(({ group }) => group.remove()));
  await allFree();
  const { items } = await listGroups();
  const left = items.filter(({ state }) => state !== 'removed');
  if (left.length > 0) throw new Error(`groups are left: ${JSON.stringify(left)}`);
}

t.test('placement groups: whatever ends, what was reserved comes back', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(placementStep, { minLength: 4, maxLength: 16 }), (steps) =>
      within(20_000, JSON.stringify(steps), playPlacement(steps)),
    ),
    { numRuns: times(15), endOnFailure: true, seed: 7 },
  );
  t.same(
    listActors().filter(({ state }) => state !== 'dead'),
    [],
  );
});
