// The dataflow with rollout actors played by functions: order, losses, failures, rollback; the pool; the order of the warm start.
import t from 'tap';
import { parseConfig } from '../../actors/pipeline/config.ts';
import { Dataflow } from '../../actors/pipeline/dataflow.ts';
import { type Assignment, RolloutPool, type RolloutWorker } from '../../actors/pipeline/pool.ts';
import { warmStart, writeDemonstrations } from '../../actors/pipeline/warm-start.ts';
import { DemonstrationOrder, learningRate, packDemonstrations } from '../../actors/trainer/index.ts';
import { type Batch, Ledger, type Trajectory, TrajectoryQueue } from '../../actors/trajectory/index.ts';
import { SinkflexError } from '../../kernels/index.ts';

const spent = (actor: string) => new SinkflexError('SINKFLEX_ACTOR_FAILED', 'budget spent', { details: { actor, final: true } });
const died = () => new SinkflexError('SINKFLEX_ACTOR_DIED', 'killed', { details: { actor: 'rollout-0' } });
function episodes(a: Assignment): Trajectory[] {
  return a.tasks.flatMap(({ index, seed }) =>
    Array.from({ length: a.samples }, (_, sample) => ({
      task: index,
      sample,
      group: `t${index}`,
      seed,
      ids: Int32Array.of(1, 2),
      mask: Uint8Array.of(0, 1),
      logprobs: Float32Array.of(0, -1),
      versions: Int32Array.of(-1, 0),
      lineage: 0,
      reward: sample % 2,
      rewardParts: {},
      stopReason: 'stop' as const,
      turns: 1,
      toolCalls: 0,
      malformed: 0,
      redone: 0,
      seconds: { total: 0, generate: 0, environment: 0 },
    })),
  );
}

/** Holds every call until it is answered; answers in an order of the test's choosing. */
class Desk implements RolloutWorker {
  readonly name: string;
  constructor(name = 'rollout-0') {
    this.name = name;
  }
  readonly calls: { assignment: Assignment; answer: (t: Trajectory[]) => void; fail: (e: unknown) => void }[] = [];
  rollout(assignment: Assignment): Promise<Trajectory[]> {
    return new Promise((answer, fail) => this.calls.push({ assignment, answer, fail }));
  }
  /** Answers the newest call. */
  finish(): boolean {
    const call = this.calls.pop();
    call?.answer(episodes(call.assignment));
    return call !== undefined;
  }
}
/** Two turns of the loop: lost work is handed out again in a turn of its own. */
const turn = () => new Promise((next) => setImmediate(() => setImmediate(next)));

function flow(o: { eta: number; workers: RolloutWorker[]; episodes?: number; batchGroups?: number }) {
  const ledger = new Ledger();
  const pool = new RolloutPool(o.workers, o.episodes ?? 8);
  const queue = new TrajectoryQueue({
    groupSize: 2,
    batchGroups: o.batchGroups ?? 3,
    staleness: o.eta,
    maxConcurrent: pool.capacity,
    ledger,
  });
  return {
    ledger,
    pool,
    queue,
    dataflow: new Dataflow({ queue, ledger, pool, temperature: 1, taskOf: (i) => ({ seed: i * 10, samples: 2 }) }),
  };
}
const tasks = (b: Batch) => b.groups.map((g) => g.task);

t.test('batches come in task order however groups finish, and eta bounds how far ahead they are sampled', async (t) => {
  const desk = new Desk();
  const { dataflow, queue, ledger } = flow({ eta: 1, workers: [desk], episodes: 64 });
  const first = dataflow.nextBatch();
  t.equal(desk.calls.length, 6, 'two batches of three groups');
  t.strictSame(desk.calls[1]!.assignment.tasks, [{ index: 1, seed: 10 }]);
  while (desk.finish()) await turn();
  const one = await first;
  t.strictSame(tasks(one), [0, 1, 2]);
  t.strictSame(tasks(await dataflow.nextBatch()), [3, 4, 5]);
  t.equal(desk.calls.length, 0, 'nothing more before a step is taken');
  queue.trained(one, 0);
  dataflow.pump();
  t.equal(desk.calls.length, 3);
  dataflow.pause();
  while (desk.finish()) await turn();
  dataflow.resume();
  t.match(ledger.check(), { sampled: 18, trained: 6, inFlight: 12 });
});

t.test('work of a dead actor is begun anew; its ledger says so; a worker that is given up leaves the pool', async (t) => {
  const desks = [new Desk('rollout-0'), new Desk('rollout-1')];
  const { dataflow, queue, ledger } = flow({ eta: 0, workers: desks });
  const next = dataflow.nextBatch();
  t.strictSame(
    desks.map((d) => d.calls.length),
    [2, 1],
    'the least loaded is asked',
  );
  for (const call of desks[0]!.calls.splice(0)) call.fail(died());
  await turn();
  t.match(ledger.check(), { sampled: 10, aborted: { actor_died: 4 }, inFlight: 6 });
  for (const call of desks[0]!.calls.splice(0)) call.fail(spent('rollout-0'));
  await turn();
  for (let i = 0; i < 4; i++) {
    while (desks[1]!.finish()) await turn();
  }
  const batch = await next;
  t.strictSame(tasks(batch), [0, 1, 2]);
  queue.trained(batch, 0);
  t.equal(ledger.check().trained, 6);
  // The last worker is given up: whoever waits gets the error, and so does whoever asks later.
  const failing = dataflow.nextBatch();
  failing.catch(() => {});
  while (desks[1]!.calls.length > 0) {
    desks[1]!.calls.pop()!.fail(spent('rollout-1'));
    await turn();
  }
  await t.rejects(failing, { code: 'SINKFLEX_ACTOR_FAILED' });
  await t.rejects(dataflow.nextBatch(), { code: 'SINKFLEX_ACTOR_FAILED' });
});

t.test('actors that are ended under way do not spin the loop: whoever waits learns it', async (t) => {
  const ended = new SinkflexError('SINKFLEX_ACTOR_DIED', 'ended by shutdown', { details: { actor: 'rollout-0', final: true } });
  const { dataflow } = flow({ eta: 0, workers: [{ name: 'rollout-0', rollout: () => Promise.reject(ended) }] });
  await t.rejects(dataflow.nextBatch(), { message: 'ended by shutdown' });
});

t.test('rollback abandons what runs, late answers change nothing, and the same tasks come again', async (t) => {
  const desk = new Desk();
  const { dataflow, queue, ledger } = flow({ eta: 1, workers: [desk], episodes: 64 });
  const first = dataflow.nextBatch();
  while (desk.calls.length > 3) desk.finish();
  const late = desk.calls.splice(0);
  first.catch(() => {});
  dataflow.rollback(0, 0);
  for (const call of late) call.answer(episodes(call.assignment));
  await turn();
  t.match(ledger.check(), { aborted: { rollback: 12 }, inFlight: 0 });
  const again = dataflow.nextBatch();
  while (desk.finish()) await turn();
  const batch = await again;
  t.strictSame(tasks(batch), [0, 1, 2]);
  queue.trained(batch, 1);
  dataflow.stop('end');
  t.match(ledger.check(), { trained: 6, aborted: { rollback: 12, end: 6 }, inFlight: 0 });
});

t.test('a defect in an actor, or rewards that are never numbers, end the run with their error', async (t) => {
  const broken = flow({ eta: 0, workers: [{ name: 'rollout-0', rollout: () => Promise.reject(new TypeError('a defect')) }] });
  await t.rejects(broken.dataflow.nextBatch(), { message: 'a defect' });
  const nan = flow({ eta: 0, workers: [{ name: 'rollout-0', rollout: async (a) => episodes(a).map((e) => ({ ...e, reward: NaN })) }] });
  await t.rejects(nan.dataflow.nextBatch(), { code: 'SINKFLEX_REWARD_INVALID' });
  t.match(nan.ledger.check().filtered, { invalid_reward: 6 });
});

t.test('the pool hands out late, in order, and stops on abort', async (t) => {
  const desk = new Desk();
  const pool = new RolloutPool([desk], 4);
  const ending = new AbortController();
  const ask = (index: number, samples = 3) =>
    pool.run({ tasks: [{ index, seed: 0 }], samples, phase: 'validation', temperature: 0 }, ending.signal);
  const answers = [ask(0, 20), ask(1), ask(2), ask(3)];
  for (const a of answers) a.catch(() => {});
  t.equal(desk.calls.length, 1, 'a large one is taken when idle, and alone');
  desk.finish();
  await turn();
  t.strictSame(
    desk.calls.map((c) => c.assignment.tasks[0]!.index),
    [1, 2],
  );
  ending.abort(new Error('over'));
  desk.finish();
  await turn();
  await t.rejects(answers[3]!, { message: 'over' });
});

t.test('the warm start: demonstrations in order whoever writes them, every pass a new order, two steps under way', async (t) => {
  const writer = {
    demonstrate: async (from: number, to: number) =>
      Array.from({ length: to - from }, (_, i) => ({ ids: Int32Array.of(from + i, 7), mask: Uint8Array.of(0, 1), reward: 1 })),
  };
  const written = await writeDemonstrations([writer, writer, writer], 150);
  t.strictSame(
    written.map((d) => d.ids[0]),
    Array.from({ length: 150 }, (_, i) => i),
  );
  const order = new DemonstrationOrder(10, 3);
  const passes = order.next(25);
  t.strictSame(
    [...passes.slice(0, 10)].sort((a, b) => a - b),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  );
  t.notSame(passes.slice(0, 10), passes.slice(10, 20));
  t.strictSame(new DemonstrationOrder(10, 3).next(25), passes);
  t.strictSame([...packDemonstrations(written.slice(0, 2)).cuSeqlens], [0, 2, 4]);
  const config = parseConfig([{ source: 'test', values: { sft: { total_steps: 5, train_batch_size: 4 } } }]);
  let under = 0;
  let most = 0;
  const steps: number[] = [];
  await warmStart({
    config,
    demonstrations: written,
    signal: new AbortController().signal,
    trainer: {
      sft: async (batch) => {
        most = Math.max(most, ++under);
        await turn();
        under--;
        return { loss: 1, gradNorm: 1, tokens: batch.ids.length, version: 1 };
      },
    },
    onStep: ({ step }) => steps.push(step),
  });
  t.strictSame(steps, [1, 2, 3, 4, 5]);
  t.equal(most, 2);
});

t.test('the learning rate warms up and falls as its schedule says', async (t) => {
  const s = { lr: 1, warmupSteps: 4, kind: 'linear' as const, minRatio: 0.1, totalSteps: 14 };
  t.equal(learningRate(s, 0), 0.25);
  t.equal(learningRate(s, 4), 1);
  t.ok(Math.abs(learningRate(s, 14) - 0.1) < 1e-12);
  t.ok(Math.abs(learningRate({ ...s, kind: 'cosine' }, 9) - 0.55) < 1e-12);
  t.equal(learningRate({ ...s, kind: 'constant' }, 100), 1);
});
