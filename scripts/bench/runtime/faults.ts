// Rows fault.*: how soon a caller knows that its actor is gone, and how soon it is answered again.
import { kill, onActorChange } from '../../../runtime/index.ts';
import { judged, ratioOf, type SuiteContext } from '../rows.ts';
import { rayOf } from './peers.ts';
import { peerOf, withRuntime } from './run.ts';
import { median, round, SUITE } from './turns.ts';

const BARS = { error: 50, again: 300 };
/** A stopped process has to be noticed within this. */
const STOP_BAR_MS = 2000;
const STOP_LIMIT_MS = 10_000;

interface Turn {
  error: number;
  again: number;
}

/** Rows fault.kill.error and fault.kill.again: SIGKILL of a restartable process actor under a call. */
export async function faultKill(context: SuiteContext): Promise<void> {
  const ray = await rayOf(context);
  if (typeof ray === 'string') context.report({ suite: SUITE, row: 'fault.kill', skipped: `peer: ${ray}` });
  await withRuntime(
    async () => {
      const ours: Turn[] = [];
      const theirs: Turn[] = [];
      for (let i = 0; i < (context.quick ? 2 : 5); i++) {
        ours.push(await killed());
        if (typeof ray === 'object') theirs.push(await ray.ask<Turn>('fault_kill'));
      }
      for (const what of ['error', 'again'] as const) {
        const own = median(ours.map((t) => t[what]));
        const peer = theirs.length === 0 ? undefined : median(theirs.map((t) => t[what]));
        context.report(
          judged(
            {
              suite: SUITE,
              row: `fault.kill.${what}`,
              unit: 'ms',
              ours: round(own),
              ...(peer === undefined ? {} : { peer: round(peer), ratio: round(ratioOf(own, peer, 'lower')) }),
              details: { turns: ours.length, worst: round(Math.max(...ours.map((t) => t[what]))) },
            },
            { most: BARS[what] },
          ),
        );
      }
    },
    { warmWorkers: { process: 1 } },
  );
}

async function killed(): Promise<Turn> {
  const peer = await peerOf('process', 10, { maxRestarts: 10 });
  const pid = await peer.pid();
  const underWay = peer.sleep(60_000).then(
    () => Promise.reject(new Error('the call of a killed actor was answered')),
    () => performance.now(),
  );
  await new Promise((done) => setTimeout(done, 700));
  const start = performance.now();
  process.kill(pid, 'SIGKILL');
  const error = (await underWay) - start;
  await peer.noop();
  const again = performance.now() - start;
  await kill(peer);
  return { error, again };
}

/** Row fault.stop: from SIGSTOP of a process actor to `health: 'stopped'`. Ray never notices. */
export async function faultStop(context: SuiteContext): Promise<void> {
  await withRuntime(async () => {
    const turns: number[] = [];
    for (let i = 0; i < (context.quick ? 1 : 3); i++) turns.push(await stopped());
    const row = { suite: SUITE, row: 'fault.stop', unit: 'ms', ours: round(median(turns)), details: { turns: turns.length, ray: 'never' } };
    context.report(judged(row, { most: STOP_BAR_MS }));
  });
}

async function stopped(): Promise<number> {
  const peer = await peerOf('process', 10);
  const pid = await peer.pid();
  let late: NodeJS.Timeout | undefined;
  let stopListening = (): void => {};
  try {
    const seen = new Promise<number>((done, failed) => {
      stopListening = onActorChange((actor) => {
        if (actor.pid === pid && actor.health === 'stopped') done(performance.now());
      });
      late = setTimeout(() => failed(new Error(`a stopped process was not noticed within ${STOP_LIMIT_MS} ms`)), STOP_LIMIT_MS);
    });
    const start = performance.now();
    process.kill(pid, 'SIGSTOP');
    return (await seen) - start;
  } finally {
    clearTimeout(late);
    stopListening();
    process.kill(pid, 'SIGCONT');
    await kill(peer);
  }
}
