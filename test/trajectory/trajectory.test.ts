// Trajectories: packing loses nothing, the ledger balances under random faults, admission keeps AReaL's bound and the order by index.
import fc from 'fast-check';
import t from 'tap';
import {
  type Batch,
  Ledger,
  microBatches,
  miniBatches,
  pack,
  selectSequences,
  type TrajectoryGroup,
  TrajectoryQueue,
  trajectoryKey,
  zeroSpread,
} from '../../actors/trajectory/index.ts';
import { trajectory } from './trajectories.ts';

const group = (task: number, samples: number, reward?: (s: number) => number): TrajectoryGroup => ({
  task,
  group: `g${task}`,
  trajectories: Array.from({ length: samples }, (_, s) => trajectory(task, s, 6, reward?.(s))),
});

t.test('packing sorts by task and sample and cuts without loss', async (t) => {
  const p = pack([trajectory(2, 0, 9), trajectory(1, 1), trajectory(1, 0, 7)]);
  t.strictSame([...p.cuSeqlens], [0, 7, 13, 22]);
  t.strictSame([...p.tasks], [1, 1, 2]);
  t.strictSame([...p.samples], [0, 1, 0]);
  t.strictSame([...p.groupOf], [0, 0, 1]);
  t.equal(p.ids[7], 1100);
  t.strictSame(miniBatches(p, 1), [
    { from: 0, to: 2 },
    { from: 2, to: 3 },
  ]);
  const only = selectSequences(p, (i) => i !== 1);
  t.strictSame([...only.cuSeqlens], [0, 7, 16]);
  t.equal(only.ids[7], 2000);
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 1, max: 60 }),
      (lengths, budget) => {
        const cu = Int32Array.from([0, ...lengths]);
        for (let i = 1; i < cu.length; i++) cu[i]! += cu[i - 1]!;
        const cuts = microBatches(cu, budget);
        if (cuts[0]!.from !== 0 || cuts.at(-1)!.to !== lengths.length) return false;
        return cuts.every((c, i) => (i === 0 || c.from === cuts[i - 1]!.to) && (cu[c.to]! - cu[c.from]! <= budget || c.to === c.from + 1));
      },
    ),
  );
  const broken = trajectory(0, 0);
  broken.logprobs[2] = NaN;
  t.throws(() => pack([broken]), { code: 'SINKFLEX_TRAJECTORY_EVIDENCE' });
});

t.test('the ledger refuses what does not add up', async (t) => {
  const l = new Ledger();
  const k = trajectoryKey(0, 0);
  l.sample(k);
  t.throws(() => l.sample(k), { code: 'SINKFLEX_LEDGER_DUPLICATE' });
  l.train([k], { lineage: 0, step: 1 });
  t.throws(() => l.filter(k, 'zero_std'), { code: 'SINKFLEX_LEDGER_UNKNOWN' });
  l.finalise(1);
  l.sample(trajectoryKey(1, 0));
  l.train([trajectoryKey(1, 0)], { lineage: 0, step: 2 });
  l.sample(trajectoryKey(2, 0));
  l.rollback(1);
  t.strictSame(l.check(), { sampled: 3, trained: 1, filtered: {}, aborted: { rollback: 2 }, inFlight: 0 });
  const restored = Ledger.restore({ sampled: 5, trained: 2, filtered: { zero_std: 1 }, aborted: {}, inFlight: 2 }, 'restart');
  t.strictSame(restored.check().aborted, { restart: 2 });
  t.throws(() => Ledger.restore({ sampled: 9, trained: 2, filtered: {}, aborted: {}, inFlight: 0 }, 'restart'), {
    code: 'SINKFLEX_LEDGER_UNBALANCED',
  });
});

/** Runs a queue against a world that finishes groups in a random order, loses some, and rolls back now and then. */
function simulate(o: {
  seed: number;
  eta: number;
  batchGroups: number;
  groupSize: number;
  steps: number;
  maxConcurrent: number;
  filter: boolean;
  faults: boolean;
}) {
  let state = o.seed >>> 0;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const ledger = new Ledger();
  const queue = new TrajectoryQueue({
    groupSize: o.groupSize,
    batchGroups: o.batchGroups,
    staleness: o.eta,
    maxConcurrent: o.maxConcurrent,
    ledger,
    maxGeneratedBatches: 3,
    ...(o.filter ? { filter: zeroSpread } : {}),
  });
  const running: { task: number; step: number; epoch: number }[] = [];
  const batches: { tasks: number[]; step: number; lag: number; batch: Batch }[] = [];
  const saved: { step: number; cursor: number }[] = [{ step: 0, cursor: 0 }];
  const admittedAt = new Map<number, number>();
  let epoch = 0;
  let guard = 0;
  while (queue.step < o.steps) {
    if (++guard > 20000) throw new Error('the queue made no progress');
    for (let task = queue.admit(); task !== undefined; task = queue.admit()) {
      running.push({ task, step: queue.step, epoch });
      admittedAt.set(task, queue.step);
    }
    if (queue.running > o.maxConcurrent) throw new Error('too many at once');
    const batch = queue.takeBatch();
    if (batch) {
      const lag = Math.max(0, ...batch.groups.map((g) => batch.step - admittedAt.get(g.task)!));
      batches.push({ tasks: batch.groups.map((g) => g.task), step: batch.step, lag, batch });
      queue.trained(batch, epoch);
      if (random() < 0.3) {
        ledger.finalise(queue.step);
        saved.push({ step: queue.step, cursor: batch.cursor });
      }
    } else if (o.faults && random() < 0.01) {
      const c = saved.at(-1)!;
      ledger.rollback(c.step);
      queue.restore(c.step, c.cursor);
      epoch++;
      running.length = 0;
      while (batches.length > 0 && batches.at(-1)!.step >= c.step) batches.pop();
    } else if (running.length > 0) {
      const i = Math.floor(random() * running.length);
      const r = running[i]!;
      if (o.faults && random() < 0.1) queue.redo(r.task, 'actor_died');
      else {
        running.splice(i, 1);
        // Rewards are a function of the task alone, as in a run with keyed randomness; some groups have no spread, some lost a member.
        const flat = r.task % 3 === 0;
        const g = group(r.task, o.groupSize, (s) => (flat ? 1 : s % 2));
        if (r.task % 5 === 0) g.trajectories[0]!.stopReason = 'error';
        if (r.task % 7 === 0) g.trajectories[1]!.reward = NaN;
        g.trajectories[0]!.redone = r.task % 11 === 0 ? 1 : 0;
        queue.finish(g);
      }
    } else throw new Error('nothing runs and no batch is ready: deadlock');
    ledger.check();
  }
  return { batches, ledger: ledger.check() };
}

t.test('admission: bounded staleness, index order, and eta = 0 whatever the order of arrival', async () => {
  fc.assert(
    fc.property(
      fc.record({
        seed: fc.integer({ min: 1, max: 1e9 }),
        eta: fc.integer({ min: 0, max: 3 }),
        batchGroups: fc.integer({ min: 1, max: 4 }),
        groupSize: fc.integer({ min: 2, max: 4 }),
        steps: fc.constant(8),
        maxConcurrent: fc.integer({ min: 4, max: 40 }),
        filter: fc.boolean(),
        faults: fc.boolean(),
      }),
      (o) => {
        const { batches, ledger } = simulate(o);
        const order = batches.flatMap((b) => b.tasks);
        if (batches.length !== o.steps) throw new Error(`${batches.length} batches for ${o.steps} steps`);
        if (order.some((task, i) => i > 0 && task <= order[i - 1]!)) throw new Error('not in index order');
        if (batches.some((b) => b.lag > o.eta)) throw new Error('staler than eta');
        if (o.eta === 0 && ledger.inFlight !== 0) throw new Error('eta = 0 leaves nothing in flight');
        // The batches are a function of the tasks alone: neither arrival, faults nor eta change them.
        const quiet = simulate({ ...o, seed: o.seed + 1, eta: 0, faults: false });
        const tasks = (r: typeof batches) => JSON.stringify(r.map((b) => b.tasks));
        if (tasks(quiet.batches) !== tasks(batches)) throw new Error('the batches depend on the schedule');
      },
    ),
    { numRuns: 150 },
  );
});

t.test('a batch that never fills is closed short and says why; a queue too small for a group is refused', async (t) => {
  const ledger = new Ledger();
  const queue = new TrajectoryQueue({
    groupSize: 2,
    batchGroups: 2,
    staleness: 0,
    maxConcurrent: 8,
    ledger,
    filter: zeroSpread,
    maxGeneratedBatches: 2,
  });
  for (let round = 0; round < 4; round++) {
    for (let task = queue.admit(); task !== undefined; task = queue.admit()) queue.finish(group(task, 2, () => 1));
  }
  const batch = queue.takeBatch()!;
  t.match(batch, { groups: [], drawn: 4, cursor: 4, filtered: { zero_std: 4 } });
  t.equal(queue.admit(), undefined, 'nothing more until the step is taken');
  queue.trained(batch, 0);
  t.equal(queue.admit(), 4);
  t.throws(() => queue.finish(group(99, 2)), { code: 'SINKFLEX_LEDGER_UNKNOWN' });
  t.throws(() => new TrajectoryQueue({ groupSize: 8, batchGroups: 2, staleness: 0, maxConcurrent: 4, ledger }), {
    code: 'SINKFLEX_QUEUE_CAPACITY',
  });
});
