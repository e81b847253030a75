// Suite `scale`: the dataflow of a run - queue, ledger, pool, actors, channels - with engines that only take their time: thousands of rollout
// actors, a hundred thousand episodes in flight. What is measured is the driver.
import {
  type Assignment,
  Dataflow,
  Ledger,
  parseLatency,
  RolloutPool,
  type RolloutWorker,
  type Trajectory,
  TrajectoryQueue,
} from '../../actors/index.ts';
import { currentActor, defineActor, onAbort, ready, spawn, withOptions } from '../../runtime/index.ts';
import { judged, type Suite, type SuiteContext } from './rows.ts';
import { alone } from './runtime/alone.ts';
import { withRuntime } from './runtime/run.ts';

const SUITE = 'scale';
const ACTORS = 2000;
const FEW_ACTORS = 200;
const IN_FLIGHT = 100_000;
const GROUP = 8;
const BATCH_GROUPS = 128;
const TOKENS = 64;
/** Of an episode, a function of its task and sample: lognormal, as tools and users are. */
const TIME = parseLatency('lognormal(mean=8s,sigma=0.5)');
const BARS = { episodes: 1500, heapBytes: 2048, cost: 1.3 };

function episode(index: number, seed: number, sample: number): Trajectory {
  const mask = new Uint8Array(TOKENS).fill(1, TOKENS / 2);
  return {
    task: index,
    sample,
    group: `t${index}`,
    seed,
    ids: new Int32Array(TOKENS).fill(7),
    mask,
    logprobs: new Float32Array(TOKENS),
    versions: Int32Array.from(mask, (m) => m - 1),
    lineage: 0,
    reward: sample % 2,
    rewardParts: {},
    stopReason: 'stop',
    turns: 4,
    toolCalls: 3,
    malformed: 0,
    redone: 0,
    seconds: { total: 0, generate: 0, environment: 0 },
  };
}

class SimulatedRolloutActor {
  /** Every episode waits for as long as it takes; nothing else. */
  rollout(a: Assignment): Promise<Trajectory[]> {
    const { signal } = currentActor();
    return Promise.all(
      a.tasks.flatMap(({ index, seed }) =>
        Array.from(
          { length: a.samples },
          (_, sample) =>
            new Promise<Trajectory>((done) => {
              const end = () => {
                clearTimeout(timer);
                stop();
                done(episode(index, seed, sample));
              };
              const timer = setTimeout(end, TIME.sample([index, sample]));
              const stop = onAbort(signal, end);
            }),
        ),
      ),
    );
  }
}
export const SimulatedRollout = defineActor(import.meta.url, 'SimulatedRollout', SimulatedRolloutActor);

interface Measured {
  episodes: number;
  seconds: number;
  /** Of the driver. */
  cpuSeconds: number;
  heapBytes: number;
  bufferBytes: number;
  inFlight: number;
}

/** Runs the dataflow until a hundred thousand episodes are in flight and batches flow, then measures for a while. */
export async function simulate({ actors, windowS }: { actors: number; windowS: number }): Promise<Measured> {
  const collect = globalThis.gc!;
  return withRuntime(async () => {
    const handles = Array.from({ length: actors }, (_, i) =>
      spawn(SimulatedRollout, { name: `rollout-${i}`, isolation: 'shared', maxConcurrency: 1 << 20 }),
    );
    await Promise.all(handles.map((h) => ready(h, { timeoutMs: 60_000 })));
    const workers: RolloutWorker[] = handles.map((handle, i) => ({
      name: `rollout-${i}`,
      rollout: (assignment, signal) => withOptions(handle, { signal }).rollout(assignment),
    }));
    collect();
    const before = process.memoryUsage();
    const ledger = new Ledger();
    const pool = new RolloutPool(workers, Math.ceil(IN_FLIGHT / actors / 1.5));
    const queue = new TrajectoryQueue({
      groupSize: GROUP,
      batchGroups: BATCH_GROUPS,
      // What waits for a straggler ahead of it must not hold the actors back.
      staleness: Math.ceil((8 * IN_FLIGHT) / (GROUP * BATCH_GROUPS)),
      maxConcurrent: IN_FLIGHT,
      ledger,
    });
    let finished = 0;
    const dataflow = new Dataflow({
      queue,
      ledger,
      pool,
      temperature: 1,
      taskOf: (index) => ({ seed: index, samples: GROUP }),
      onGroup: (group) => {
        finished += group.length;
      },
    });
    dataflow.pump();
    collect();
    const filled = process.memoryUsage();
    const inFlight = ledger.snapshot().inFlight;
    const step = async () => {
      queue.trained(await dataflow.nextBatch(), 0);
      ledger.finalise(queue.step);
      dataflow.pump();
    };
    // All began at once: they spread out over the first turnover.
    while (finished < 1.5 * IN_FLIGHT) await step();
    const began = performance.now();
    const cpu = process.cpuUsage();
    finished = 0;
    while (performance.now() - began < windowS * 1000) await step();
    const used = process.cpuUsage(cpu);
    const seconds = (performance.now() - began) / 1000;
    const episodes = finished;
    ledger.check();
    dataflow.stop('end');
    return {
      episodes,
      seconds,
      cpuSeconds: (used.user + used.system) / 1e6,
      heapBytes: (filled.heapUsed - before.heapUsed) / inFlight,
      bufferBytes: (filled.arrayBuffers - before.arrayBuffers) / inFlight,
      inFlight,
    };
  });
}

const figure = (n: number): number => Number(n.toPrecision(4));

async function dataflow(context: SuiteContext): Promise<void> {
  const windowS = context.quick ? 5 : 15;
  const run = (actors: number) => alone<Measured>(import.meta.url, 'simulate', { actors, windowS }, 200_000);
  const many = await run(ACTORS);
  const few = await run(FEW_ACTORS);
  const rate = (m: Measured) => m.episodes / m.seconds;
  const cost = (m: Measured) => (m.cpuSeconds / m.episodes) * 1e6;
  const details = {
    actors: ACTORS,
    in_flight: many.inFlight,
    group: GROUP,
    tokens: TOKENS,
    driver_cpu_us: figure(cost(many)),
    driver_busy: figure(many.cpuSeconds / many.seconds),
  };
  context.report(
    judged({ suite: SUITE, row: 'scale.episodes', unit: 'episodes/s', ours: figure(rate(many)), details }, { least: BARS.episodes }),
  );
  context.report(
    judged(
      {
        suite: SUITE,
        row: 'scale.heap',
        unit: 'bytes',
        ours: Math.round(many.heapBytes),
        details: { in_flight: many.inFlight, buffers: Math.round(many.bufferBytes) },
      },
      { most: BARS.heapBytes },
    ),
  );
  context.report(
    judged(
      {
        suite: SUITE,
        row: 'scale.cost',
        unit: 'x',
        ours: figure(cost(many) / cost(few)),
        details: { actors: ACTORS, against: FEW_ACTORS, driver_cpu_us: figure(cost(many)), driver_cpu_us_few: figure(cost(few)) },
      },
      { most: BARS.cost },
    ),
  );
}

export const scaleSuite: Suite = { 'scale.episodes': dataflow };
