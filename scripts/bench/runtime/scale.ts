// Rows scale.*: how many actors live and answer on one host, and a million calls in a queue.
import { availableParallelism } from 'node:os';
import { ActorBusyError, defineActor, type Isolation, listActors, spawn } from '../../../runtime/index.ts';
import { judged, type SuiteContext } from '../rows.ts';
import { Peer } from './actors.ts';
import { alone } from './alone.ts';
import { residentBytes } from './private-memory.ts';
import { withRuntime } from './run.ts';
import { round, SUITE } from './turns.ts';

const ACTORS: Record<Isolation, number> = { shared: 50_000, thread: 64, process: 32 };
const CALLS = 1_000_000;

class SinkActor {
  #taken = 0;
  take(n: number): void {
    if (n !== this.#taken) throw new Error(`call ${n} came after ${this.#taken} calls`);
    this.#taken++;
  }
  taken(): number {
    return this.#taken;
  }
}
/** Counts the calls that ran, and refuses one that is out of order. */
export const Sink = defineActor(import.meta.url, 'Sink', SinkActor);

/** Rows scale.shared, .thread, .process: seconds until all of them have answered twice, the second time while all are alive. */
export async function scaleActors(context: SuiteContext, isolation: Isolation): Promise<void> {
  const count = ACTORS[isolation];
  const r = await alone<{ seconds: number; answered: number; again: number }>(import.meta.url, 'manyActors', { isolation, count }, 120_000);
  context.report(
    judged(
      {
        suite: SUITE,
        row: `scale.${isolation}`,
        unit: 'actors',
        ours: r.answered,
        details: { seconds: round(r.seconds), all_once_more_ms: round(r.again), cores: availableParallelism() },
      },
      { least: count },
    ),
  );
}

export async function manyActors({ isolation, count }: { isolation: Isolation; count: number }) {
  return withRuntime(async () => {
    const start = performance.now();
    const peers = Array.from({ length: count }, () => spawn(Peer, { isolation }));
    const answers = await Promise.all(peers.map((peer) => peer.noop()));
    const middle = performance.now();
    const more = await Promise.all(peers.map((peer) => peer.noop()));
    const answered = answers.filter((answer, i) => answer === 'ok' && more[i] === 'ok').length;
    return { seconds: (middle - start) / 1000, answered, again: performance.now() - middle };
  });
}

/** Rows scale.queue.*: a million calls made in one turn of the event loop, with the mailbox waiting: memory of both processes, none lost. */
export async function scaleQueue(context: SuiteContext): Promise<void> {
  if (process.platform !== 'linux') return context.report({ suite: SUITE, row: 'scale.queue', skipped: 'memory is read from /proc' });
  const r = await alone<{ peak: number; ran: number; answered: number; seconds: number }>(import.meta.url, 'manyCalls', {}, 120_000);
  const details = { calls: CALLS, calls_per_s: Math.round(CALLS / r.seconds), policy: 'wait' };
  context.report(judged({ suite: SUITE, row: 'scale.queue.rss', unit: 'GiB', ours: round(r.peak / 2 ** 30), details }, { most: 1.5 }));
  context.report(
    judged({ suite: SUITE, row: 'scale.queue.lost', unit: 'calls', ours: 2 * CALLS - r.ran - r.answered, details }, { most: 0 }),
  );
}

/** Row scale.queue.reject: the same with a mailbox that refuses: milliseconds until the last of the excess has failed, none unaccounted for. */
export async function scaleReject(context: SuiteContext): Promise<void> {
  const r = await alone<{ answered: number; refused: number; ms: number }>(import.meta.url, 'refusedCalls', {}, 120_000);
  const details = { calls: CALLS, answered: r.answered, refused: r.refused, refused_after_ms: Math.round(r.ms), policy: 'reject' };
  const row = { suite: SUITE, row: 'scale.queue.reject', unit: 'calls', ours: CALLS - r.answered - r.refused, details };
  context.report(judged(row, { most: 0 }));
}

export async function refusedCalls() {
  return withRuntime(async () => {
    const sink = spawn(Peer, { onFull: 'reject', maxPending: 1000 });
    await sink.noop();
    const start = performance.now();
    let [answered, refused, last] = [0, 0, start];
    const calls: Promise<unknown>[] = [];
    for (let i = 0; i < CALLS; i++) {
      calls.push(
        sink.noop().then(
          () => {
            answered++;
          },
          (error) => {
            if (!(error instanceof ActorBusyError)) throw error;
            refused++;
            last = performance.now();
          },
        ),
      );
    }
    await Promise.all(calls);
    return { answered, refused, ms: last - start };
  });
}

export async function manyCalls() {
  return withRuntime(async () => {
    const sink = spawn(Sink, { onFull: 'wait' });
    await sink.taken();
    const info = listActors().find((actor) => actor.kind === 'Sink')!;
    let peak = 0;
    const look = (): void => {
      peak = Math.max(peak, residentBytes(process.pid) + residentBytes(info.pid!));
    };
    const timer = setInterval(look, 20);
    const start = performance.now();
    let answered = 0;
    const calls: Promise<unknown>[] = [];
    for (let i = 0; i < CALLS; i++) {
      calls.push(
        sink.take(i).then(() => {
          answered++;
        }),
      );
    }
    look();
    await Promise.all(calls);
    const seconds = (performance.now() - start) / 1000;
    look();
    clearInterval(timer);
    return { peak, ran: await sink.taken(), answered, seconds };
  });
}
