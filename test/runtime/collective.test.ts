// Collectives among actors: any isolation in one group, and groups that end with the calls and the lives of their members.
import t from 'tap';
import { type ActorHandle, createCollective, get, type Isolation, init, kill, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { Member } from './fixtures/collective-actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

type Handle = ActorHandle<typeof Member>;
/** Soon, for a machine that does other things as well. */
const SOON_MS = 20_000;

const isolations: Isolation[] = ['process', 'thread', 'shared'];
async function join(members: readonly Handle[]): Promise<number[]> {
  const group = createCollective(members.length, { chunkBytes: 4096 });
  return get(members.map((member, rank) => member.join(group, rank)));
}

t.test('members in processes, threads and a shared worker: a step is the mean over all, in the same bits for each', async (t) => {
  const members = isolations.map((isolation) => spawn(Member, { isolation }));
  const pids = await join(members);
  t.equal(new Set(pids).size, 3, 'a process, the driver and the shared worker');
  const gradients = (rank: number) => Float32Array.from({ length: 5000 }, (_, i) => Math.fround(i / 7) * 10 ** (rank - 2));
  const means = await get(members.map((member, rank) => member.step(gradients(rank))));
  const sum = gradients(0);
  for (const rank of [1, 2]) {
    for (const [i, v] of gradients(rank).entries()) sum[i] = sum[i]! + v;
  }
  const mean = sum.map((v) => v / members.length);
  for (const each of means) t.strictSame(each, mean);
  await Promise.all(members.map((member) => kill(member)));
});

t.test('the death of a process actor ends the group for all', async (t) => {
  const members = isolations.map((isolation) => spawn(Member, { isolation, maxRestarts: 3, restartBackoffMs: 0 }));
  const pids = await join(members);
  const ends = members.map((member) => member.stepUntilBroken(20_000));
  const lost = ends[0]!.then(
    () => undefined,
    (error) => (error as { code: string }).code,
  );
  const killed = performance.now();
  process.kill(pids[0]!, 'SIGKILL');
  for (const end of ends.slice(1)) t.match(await end, { code: 'SINKFLEX_COLLECTIVE_BROKEN', reason: 'died', rank: 0, pid: pids[0] });
  t.ok(performance.now() - killed < SOON_MS);
  t.equal(await lost, 'SINKFLEX_ACTOR_DIED');
  // The restarted actor has joined nothing: all join a new group.
  await join(members);
  const [first] = await get(members.map((member) => member.step(new Float32Array([2]))));
  t.strictSame(first, new Float32Array([2]));
  await Promise.all(members.map((member) => kill(member)));
});

t.test('an actor that is ended leaves its group, in any isolation', async (t) => {
  const stay = spawn(Member, { isolation: 'shared' });
  for (const isolation of ['process', 'thread', 'shared'] as const) {
    const leaves = spawn(Member, { isolation });
    await join([leaves, stay]);
    const end = stay.stepUntilBroken(8);
    await kill(leaves);
    t.match(await end, { code: 'SINKFLEX_COLLECTIVE_BROKEN', reason: /left|died/, rank: 0 }, isolation);
  }
});

t.test('operations inherit the deadline of the call around them', async (t) => {
  const members = [spawn(Member, { isolation: 'thread' }), spawn(Member, { isolation: 'shared' })] as const;
  await join(members);
  const waits = members[1].stepUntilBroken(8);
  await t.rejects(withOptions(members[0], { timeoutMs: 150 }).stepUntilBroken(8).finally(), { code: 'SINKFLEX_CALL_TIMEOUT' });
  t.match(await waits, { code: 'SINKFLEX_COLLECTIVE_BROKEN', reason: /deadline|aborted/, rank: 0, aborted: false });
});
