// What holds whatever breaks: the order of a caller's calls, at most once (at least once where retries are asked for, and then once for each
// incarnation), true words about what may have run, and nothing left over. Seeded runs with kills, broken channels and channels that close.
import t from 'tap';
import { Ref } from '../../runtime/objects/index.ts';
import { encodeAlone } from '../../runtime/wire/index.ts';
import { enter, type Session } from '../../runtime/worker/index.ts';
import { PATIENCE_MS } from '../until.ts';
import { SimulatedRun } from './fixtures/simulated.ts';

/** caller, number of the call, incarnation: in the order of execution, over all incarnations of an actor. */
type Log = [caller: number, call: number, incarnation: number][];

interface Made {
  caller: number;
  call: number;
  actor: number;
  retries: number;
  outcome: string;
  done: Promise<void>;
}

const ACTORS = [1000, 1001];
const CALLERS = 3;

interface Mix {
  kills: boolean;
  cuts: boolean;
  idleMs?: number;
  most?: number;
}

async function simulate(seed: number, mix: Mix): Promise<void> {
  const run = new SimulatedRun(seed, {
    ...(mix.idleMs === undefined ? {} : { idleMs: mix.idleMs }),
    ...(mix.most === undefined ? {} : { most: mix.most }),
  });
  const logs = new Map<number, Log>(ACTORS.map((id) => [id, []]));
  const callers: Session[] = [];
  for (let i = 0; i < CALLERS; i++) callers.push(await run.worker());
  for (const id of ACTORS) {
    const log = logs.get(id)!;
    class Recorder {
      readonly #incarnation: number;
      constructor(incarnation: unknown) {
        this.#incarnation = incarnation as number;
      }
      note(caller: number, call: number, value: unknown): number {
        if (value !== 'plain' && (value as { n: number }).n !== call) throw new Error('another call has its argument');
        log.push([caller, call, this.#incarnation]);
        if (run.random() < 0.05) throw new RangeError('thrown');
        return call;
      }
      async later(caller: number, call: number, value: unknown): Promise<number> {
        this.note(caller, call, value);
        await run.turns(run.pick(3));
        if (run.random() < 0.05) throw new RangeError('rejected');
        return call;
      }
    }
    await run.actor(id, Recorder as never, { maxPending: [0, 3, 10_000][run.pick(3)]! });
  }
  const made: Made[] = [];
  const refs: Ref[] = [];
  const incidents: Promise<void>[] = [];
  let dying = false;
  const length = 20 + run.pick(60);
  for (let i = 0; i < length; i++) {
    const dice = run.random();
    if (dice < 0.7) {
      const caller = run.pick(CALLERS);
      const actor = ACTORS[run.pick(ACTORS.length)]!;
      const here = callers[caller]!;
      enter(here);
      const retries = run.random() < 0.4 ? 3 : 0;
      let argument: unknown = 'plain';
      if (run.random() < 0.2) {
        const ref = new Ref();
        ref.resolve(encodeAlone({ n: i }));
        refs.push(ref);
        argument = ref;
      } else if (run.random() < 0.3) argument = { n: i };
      const options = retries > 0 ? { maxRetries: retries } : undefined;
      const ref = here.client(actor, `actor-${actor}`).call(run.random() < 0.5 ? 'note' : 'later', [caller, i, argument], options);
      const entry: Made = { caller, call: i, actor, retries, outcome: '', done: Promise.resolve() };
      entry.done = ref.then(
        (value) => {
          entry.outcome = value === i ? 'ran' : `answered ${String(value)}`;
        },
        (reason: unknown) => {
          const error = reason as { name: string; code: string; details?: { mayHaveRun?: boolean } };
          if (error.name === 'RangeError') entry.outcome = 'ran';
          else if (error.code === 'SINKFLEX_ACTOR_DIED' || error.code === 'SINKFLEX_PROTOCOL')
            entry.outcome = error.details?.mayHaveRun === false ? 'not' : 'perhaps';
          else if (error.code === 'SINKFLEX_OBJECT_LOST') entry.outcome = 'not';
          else entry.outcome = `failed with ${String(error)}`;
        },
      );
      made.push(entry);
    } else if (dice < 0.9) await run.turns(run.pick(6));
    else if (dice < 0.93 && mix.kills && !dying) {
      dying = true;
      incidents.push(
        run.kill(ACTORS[run.pick(ACTORS.length)]!).finally(() => {
          dying = false;
        }),
      );
    } else if (dice < 0.96 && mix.cuts) run.cut();
    else if (mix.idleMs !== undefined) await new Promise((resolve) => setTimeout(resolve, mix.idleMs! * (1 + run.pick(3))));
  }
  await Promise.all(incidents);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer: ${JSON.stringify(made.filter(({ outcome }) => outcome === ''))}`)), 10_000);
  });
  await Promise.race([Promise.all(made.map(({ done }) => done)), late]);
  clearTimeout(timer);

  for (const { caller, call, actor, retries, outcome } of made) {
    const runs = logs.get(actor)!.filter(([by, number]) => by === caller && number === call);
    const say = (what: string): Error =>
      new Error(`call ${call} of caller ${caller} to ${actor} (retries ${retries}): ${what}; ran ${JSON.stringify(runs)}`);
    if (!['ran', 'not', 'perhaps'].includes(outcome)) throw say(outcome);
    if (retries === 0 && runs.length > 1) throw say('ran more than once');
    if (runs.length > retries + 1) throw say('ran more often than it may');
    if (new Set(runs.map(([, , incarnation]) => incarnation)).size !== runs.length) throw say('ran twice in one incarnation');
    if (outcome === 'ran' && runs.length === 0) throw say('was answered and did not run');
    if (outcome === 'not' && runs.length > 0) throw say('was said not to have run');
    if (!mix.kills && !mix.cuts && (outcome !== 'ran' || runs.length !== 1)) throw say(`nothing broke, and it ended as ${outcome}`);
  }
  for (const [actor, log] of logs) {
    // What is not repeated starts in the order of its caller; so does what is, within an incarnation, where nothing else was repeated.
    const last = new Map<string, number>();
    for (const [caller, call, incarnation] of log) {
      const retries = made.find((entry) => entry.caller === caller && entry.call === call)!.retries;
      const key = `${caller} ${incarnation} ${retries === 0 ? 'once' : 'again'}`;
      if (call < (last.get(key) ?? -1))
        throw new Error(`actor ${actor}: call ${call} of caller ${caller} out of order in ${JSON.stringify(log)}`);
      last.set(key, call);
    }
  }
  for (const ref of refs) ref.release();
  // An acknowledgement may be lost with its channel; the next call says it again.
  if (mix.cuts)
    for (const [caller, here] of callers.entries())
      for (const actor of ACTORS)
        await here
          .client(actor, '')
          .call('note', [caller, -1, 'plain'], { maxRetries: 9 })
          .catch(() => {});
  // What the last messages bring about needs a few turns.
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end && !quiet(); ) await run.turns(10);
  function quiet(): boolean {
    return (
      callers.every(
        (session) => session.loans.size === 0 && [...session.connections()].every(({ unansweredCount }) => unansweredCount === 0),
      ) && ACTORS.every((id) => run.host(id).answered.size === 0 && run.host(id).queuedCount === 0)
    );
  }
  if (!quiet()) {
    const left = callers.map((session) => [
      session.loans.size,
      ...[...session.connections()].map(({ unansweredCount }) => unansweredCount),
    ]);
    throw new Error(`left over: loans and calls ${JSON.stringify(left)}, answers ${ACTORS.map((id) => run.host(id).answered.size)}`);
  }
  run.close();
}

/** Runs of consecutive seeds, many at a time: they wait for timers more than they work. */
async function simulateAll(first: number, count: number, mix: Mix): Promise<void> {
  const seeds = Array.from({ length: count }, (_, i) => first + i);
  const one = async (): Promise<void> => {
    for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) {
      try {
        await simulate(seed, mix);
      } catch (error) {
        throw new Error(`seed ${seed} ${JSON.stringify(mix)}: ${(error as Error).message}`);
      }
    }
  };
  await Promise.all(Array.from({ length: 25 }, one));
}

t.test('nothing breaks', () => simulateAll(1, 30, { kills: false, cuts: false }));
t.test('actors are killed', () => simulateAll(1000, 120, { kills: true, cuts: false }));
t.test('channels break', () => simulateAll(2000, 80, { kills: false, cuts: true }));
t.test('channels close when idle and open again', () => simulateAll(3000, 40, { kills: false, cuts: false, idleMs: 4 }));
t.test('few channels, the rest is relayed', () => simulateAll(4000, 40, { kills: false, cuts: false, most: 1 }));
t.test('all of it', () => simulateAll(5000, 120, { kills: true, cuts: true, idleMs: 6, most: 2 }));
