// Where actors and groups are placed, on a cluster of three nodes: strategies, waiting and why, names, owners, lost nodes.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import {
  type ActorInfo,
  drainNode,
  explain,
  getActor,
  init,
  joinHead,
  kill,
  listActors,
  listEvents,
  listNodes,
  onActorChange,
  placementGroup,
  type RunningAgent,
  type RunningHead,
  ready,
  shutdown,
  spawn,
  startHead,
} from '../../runtime/index.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { Placed } from './fixtures/owners.ts';

delete process.env.NODE_OPTIONS;
const folder = mkdtempSync(join(tmpdir(), 'sf-p-'));
let head: RunningHead;
const agents = new Map<string, RunningAgent>();

async function join3(node: string, labels: Record<string, string>): Promise<void> {
  agents.set(
    node,
    await joinHead({ address: folder, node, cpus: 2, gpus: 2, memory: 2 ** 30, resources: { slot: 4 }, labels, onOutput: () => {} }),
  );
}

t.before(async () => {
  head = await startHead({ folder });
  await Promise.all([join3('a', { zone: 'x' }), join3('b', { zone: 'y', disk: 'ssd' }), join3('c', { zone: 'y' })]);
  await init({ address: folder, onOutput: () => {} });
});
t.teardown(async () => {
  await shutdown();
  await head.close();
  rmSync(folder, { recursive: true, force: true });
});

/** The next change that fits, or the present state if that does. */
function seen(what: (info: ActorInfo) => boolean): Promise<ActorInfo> {
  const now = listActors().find(what);
  if (now !== undefined) return Promise.resolve(now);
  return new Promise((resolve) => {
    const stop = onActorChange((info) => {
      if (!what(info)) return;
      stop();
      resolve(info);
    });
  });
}
const nodeOf = (name: string): string => listActors().find((info) => info.name === name && info.state !== 'dead')!.node;

/** Everything that was reserved is back. */
async function allFree(t: Test): Promise<void> {
  for (const { node, total, free, actors, leases } of await listNodes()) {
    t.same(free, total, `node ${node}`);
    t.equal(actors + leases, 0, `node ${node}`);
  }
}

t.test('strategies and labels', async (t) => {
  const spread = ['s1', 's2', 's3'].map((name) => spawn(Placed, { name, isolation: 'shared', resources: { slot: 1 }, strategy: 'spread' }));
  await Promise.all(spread.map((actor) => ready(actor)));
  t.same(['s1', 's2', 's3'].map(nodeOf).sort(), ['a', 'b', 'c'], 'spread: the least used');
  const there = spawn(Placed, { name: 'there', isolation: 'shared', strategy: { node: 'c' } });
  const ssd = spawn(Placed, { name: 'ssd', isolation: 'shared', labels: { disk: 'ssd' } });
  const soft = spawn(Placed, { name: 'soft', isolation: 'shared', strategy: { node: 'nowhere', soft: true } });
  await Promise.all([there, ssd, soft].map((actor) => ready(actor)));
  t.equal(nodeOf('there'), 'c');
  t.equal(nodeOf('ssd'), 'b');
  t.not(nodeOf('soft'), '');
  const gpu = [0, 1].map((i) => spawn(Placed, { name: `gpu${i}`, isolation: 'shared', gpus: 1, strategy: { node: 'a' } }));
  t.same((await Promise.all(gpu.map((actor) => actor.gpus()))).flat().sort(), [0, 1], 'whole GPUs have numbers');
  await Promise.all([...spread, there, ssd, soft, ...gpu].map((actor) => kill(actor)));
  await allFree(t);
});

t.test('what has no room waits, says why, and comes when there is room', async (t) => {
  const full = ['f1', 'f2', 'f3'].map((name) => spawn(Placed, { name, isolation: 'shared', cpus: 2 }));
  await Promise.all(full.map((actor) => ready(actor)));
  const late = spawn(Placed, { name: 'late', isolation: 'shared', cpus: 1.5 });
  const answer = late.pid();
  await seen((info) => info.name === 'late' && info.state === 'pending');
  const why = await explain(late);
  t.match(why, { state: 'pending', feasible: true });
  t.same(
    // They joined at the same time, in any order.
    why.asks[0]?.nodes.map(({ node, verdict }) => [node, verdict]).sort(),
    [
      ['a', 'busy'],
      ['b', 'busy'],
      ['c', 'busy'],
    ],
  );
  const never = spawn(Placed, { name: 'never', isolation: 'shared', cpus: 3 });
  t.match(await explain(never), { feasible: false, text: /too small/ });
  await kill(full[1]!);
  t.type(await answer, 'number', 'a call waits with its actor');
  await kill(never);
  t.match(await never.pid().catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true });
  await Promise.all([full[0]!, full[2]!, late].map((actor) => kill(actor)));
  await allFree(t);
});

t.test('placement groups', async (t) => {
  const group = placementGroup([{ cpus: 1 }, { cpus: 1 }, { cpus: 1 }], { strategy: 'STRICT_SPREAD', name: 'three' });
  await group.ready();
  const inside = [0, 1, 2].map((bundle) =>
    spawn(Placed, { name: `in${bundle}`, isolation: 'shared', cpus: 1, placementGroup: group, bundle }),
  );
  await Promise.all(inside.map((actor) => ready(actor)));
  t.same(['in0', 'in1', 'in2'].map(nodeOf).sort(), ['a', 'b', 'c']);
  const packed = placementGroup([{ cpus: 1 }, { resources: { slot: 4 } }], { strategy: 'STRICT_PACK' });
  await packed.ready();
  const big = placementGroup([{ cpus: 2 }, { cpus: 2 }], { strategy: 'STRICT_PACK' });
  t.match(await big.ready({ timeoutMs: 50 }).catch((e: unknown) => e), { code: 'SINKFLEX_NOT_PLACED' });
  t.match(await explain(big), { state: 'pending', feasible: false });
  const waiting = big.ready().catch((e: unknown) => e);
  await big.remove();
  t.match(await waiting, { code: 'SINKFLEX_GROUP_REMOVED' });
  await group.remove();
  const error = await inside[0]!.pid().catch((e: unknown) => e);
  t.match(error, { code: 'SINKFLEX_ACTOR_DIED', final: true, message: /was removed/ }, 'its actors end with it');
  await packed.remove();
  await seen((info) => info.name === 'in2' && info.state === 'dead');
  await allFree(t);
  // Each state that a group goes through is one event, also those that one step leads through.
  const states = (await listEvents({ where: { what: 'group', name: 'three' } })).items.map(({ change }) => change);
  t.same(states, [...new Set(states)]);
  t.same(states.slice(-2), ['removing', 'removed']);
  t.throws(() => placementGroup([]), { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => placementGroup([{ cpus: 0 }]), { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => placementGroup([{ cpus: 1 }], { strategy: 'NEAR' as 'PACK' }), { code: 'SINKFLEX_BAD_OPTION' });
});

t.test('names: one living actor each, get or create', async (t) => {
  const options = { name: 'single', isolation: 'shared', getIfExists: true } as const;
  const [one, two] = [spawn(Counter, options), spawn(Counter, options)];
  t.equal(await one.add(1), 1);
  t.equal(await two.add(1), 2, 'the same actor');
  // A handle that was passed on before it was known which actor answers.
  const three = spawn(Counter, options);
  const probe = spawn(Probe, { isolation: 'shared' });
  t.equal(await probe.addThrough(three, 1), 3);
  t.equal(await (await getActor<typeof Counter>('single')).add(1), 4);
  const other = await ready(spawn(Placed, { name: 'single', isolation: 'shared', getIfExists: true })).catch((e: unknown) => e);
  t.match(other, { code: 'SINKFLEX_ACTOR_DIED', details: { reason: 'refused' }, cause: { code: 'SINKFLEX_NAME_TAKEN' } });
  const again = await spawn(Counter, { name: 'single', isolation: 'shared' })
    .add(1)
    .catch((e: unknown) => e);
  t.match(again, { code: 'SINKFLEX_ACTOR_DIED', cause: { code: 'SINKFLEX_NAME_TAKEN' } });
  await kill(two);
  t.match(await one.add(1).catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true });
  await t.rejects(getActor('single'), { code: 'SINKFLEX_UNKNOWN_ACTOR' });
  t.equal(await spawn(Counter, options).add(1), 1, 'a new one');
  await kill(await getActor('single'));
  await kill(probe);
});

t.test('what an actor owns ends with that incarnation of it', async (t) => {
  const parent = spawn(Placed, { name: 'parent', isolation: 'process', maxRestarts: 1, restartBackoffMs: 0 });
  const child = await parent.child();
  const group = await parent.group(1);
  t.equal(await child.add(1), 2);
  process.kill(await parent.pid(), 'SIGKILL');
  await seen((info) => info.name === 'parent' && info.incarnation === 2 && info.state === 'alive');
  t.match(await child.add(1).catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true, message: /owner/ });
  const second = await parent.child();
  t.equal(await second.add(1), 2);
  await kill(parent);
  t.match(await second.add(1).catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true });
  t.match((await explain({ id: group })).state, /remov/);
  await allFree(t);
});

t.test('a drained node: who can moves, with its state and uncounted; bundles are placed again; the rest ends', async (t) => {
  const group = placementGroup([{ cpus: 1 }, { cpus: 1 }], { strategy: 'STRICT_SPREAD' });
  await group.ready();
  const inside = spawn(Placed, { name: 'inside', isolation: 'shared', cpus: 1, maxRestarts: 1, placementGroup: group, bundle: 0 });
  await ready(inside);
  const node = nodeOf('inside');
  const soft = { node, soft: true };
  const moves = spawn(Placed, { name: 'moves', isolation: 'process', maxRestarts: 1, strategy: soft });
  const stays = spawn(Placed, { name: 'stays', isolation: 'process', strategy: soft });
  await moves.save(42);
  const pid = await moves.pid();
  t.equal(nodeOf('moves'), node);
  await ready(stays);
  const ended = agents.get(node)!.ended;
  await drainNode(node, { timeoutMs: 2000 });
  await seen((info) => info.name === 'moves' && info.state === 'alive' && info.node !== node);
  t.equal(await moves.saved(), 42, 'its checkpoint went with it');
  t.not(await moves.pid(), pid);
  t.equal(await ended, 'drained');
  t.match(await stays.pid().catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true, details: { reason: 'lost' } });
  await group.ready();
  t.equal(await inside.incarnation(), 2);
  t.not(nodeOf('inside'), node);
  t.same(
    (await listNodes()).map((each) => each.node).sort(),
    ['a', 'b', 'c'].filter((each) => each !== node),
  );
  process.kill(await moves.pid(), 'SIGKILL');
  await seen((info) => info.name === 'moves' && info.incarnation === 3 && info.state === 'alive');
  t.equal(await moves.incarnation(), 3, 'the move was none of its restarts');
  await kill(moves);
  await group.remove();
  await seen((info) => info.name === 'inside' && info.state === 'dead');
  await allFree(t);
});
