// The life of an actor as a pure machine: whatever happens, in whatever order, these hold.
import fc from 'fast-check';
import t from 'tap';
import { RuntimeFailure } from '../../runtime/api/errors.ts';
import {
  type ActorEffect,
  type ActorEvent,
  advance,
  born,
  type DeathData,
  type Life,
  Liveness,
  type RestartPolicy,
} from '../../runtime/control/index.ts';
import { isHopeless } from '../../runtime/head/hopeless.ts';
import { encodeError } from '../../runtime/wire/index.ts';

const policy = fc.record<RestartPolicy>({
  maxRestarts: fc.integer({ min: 0, max: 4 }),
  windowMs: fc.integer({ min: 1, max: 200 }),
  backoffMs: fc.integer({ min: 0, max: 50 }),
  backoffMaxMs: fc.constant(300),
});

t.test('liveness: suspect and lost exactly when silent for longer than that, and never for the time in which nobody listened', (t) => {
  const times = { everyMs: 500, suspectMs: 2000, leaseMs: 10_000 };
  const step = fc.record({
    node: fc.constantFrom('a', 'b', 'c'),
    what: fc.constantFrom('heard', 'heard', 'silence', 'forget'),
    ms: fc.nat(4000),
  });
  let suspects = 0;
  let losses = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const liveness = new Liveness(times);
      /** What it should know: when each was heard, and what was said of it. */
      const heard = new Map<string, { at: number; suspect: boolean }>();
      let now = 1000;
      const until = (end: number): void => {
        for (let due = liveness.due(); due !== undefined && due <= end; due = liveness.due()) {
          now = due;
          const verdicts = liveness.check(now);
          const expected = [...heard]
            .filter(([, { at, suspect }]) => now - at > (suspect ? times.leaseMs : times.suspectMs))
            .map(([node]) => node);
          const said = [...verdicts.suspect, ...verdicts.lost].map(({ node }) => node);
          if (expected.length === 0 || JSON.stringify(said.sort()) !== JSON.stringify(expected.sort()))
            throw new Error(`at ${now}: ${said.join()}, not ${expected.join()}`);
          for (const { node } of verdicts.suspect) heard.get(node)!.suspect = true;
          for (const { node } of verdicts.lost) heard.delete(node);
          suspects += verdicts.suspect.length;
          losses += verdicts.lost.length;
        }
        now = end;
      };
      for (const { node, what, ms } of steps) {
        until(now + ms);
        if (what === 'heard') {
          if (liveness.heard(node, now) !== (heard.get(node)?.suspect ?? false)) throw new Error('back from suspicion');
          heard.set(node, { at: now, suspect: false });
        } else if (what === 'forget') {
          liveness.forget(node);
          heard.delete(node);
        }
      }
    }),
    { seed: 20261130, numRuns: 300, endOnFailure: true },
  );
  t.ok(suspects > 300 && losses > 50, `${suspects} suspects, ${losses} losses`);

  // A head that was stopped for a minute itself: everybody has the time to be heard again.
  const liveness = new Liveness(times);
  liveness.heard('a', 0);
  liveness.heard('b', 0);
  liveness.due();
  t.same(liveness.check(60_000), { suspect: [], lost: [] });
  liveness.heard('a', 60_100);
  t.ok(liveness.due()! <= 62_000);
  t.match(liveness.check(liveness.due()!), { suspect: [{ node: 'b' }], lost: [] });
  liveness.forget('a');
  t.ok(liveness.due()! > 66_000, 'its lease');
  t.match(liveness.check(liveness.due()!), { suspect: [], lost: [{ node: 'b' }] });
  t.equal(liveness.due(), undefined);
  t.end();
});

/** An event, its incarnation relative to the current one (0: current; others must be fenced), and the time until it. */
const move = fc.record({
  type: fc.constantFrom<ActorEvent['type']>('started', 'died', 'died', 'backoff-elapsed', 'backoff-elapsed', 'kill'),
  offset: fc.constantFrom(0, 0, 0, 0, -1, 1, -3),
  restart: fc.boolean(),
  after: fc.integer({ min: 0, max: 60 }),
});

interface Trace {
  life: Life;
  event: ActorEvent | undefined;
  effects: ActorEffect[];
  now: number;
}

function play(rules: RestartPolicy, moves: { type: ActorEvent['type']; offset: number; restart: boolean; after: number }[]): Trace[] {
  let { life, effects } = born(rules);
  const trace: Trace[] = [{ life, event: undefined, effects, now: 0 }];
  let now = 0;
  for (const { type, offset, restart, after } of moves) {
    now += after;
    const event: ActorEvent = type === 'kill' ? { type, restart } : { type, incarnation: life.incarnation + offset };
    ({ life, effects } = advance(life, event, now));
    trace.push({ life, event, effects, now });
  }
  return trace;
}

t.test('invariants of every history', (t) => {
  fc.assert(
    fc.property(policy, fc.array(move, { maxLength: 60 }), (rules, moves) => {
      const trace = play(rules, moves);
      const started = new Set<number>();
      const counted: number[] = [];
      for (let i = 0; i < trace.length; i++) {
        const { life, event, effects, now } = trace[i]!;
        const before = trace[i - 1]?.life;
        for (const effect of effects) {
          if (effect.type !== 'start') continue;
          if (started.has(effect.incarnation)) throw new Error('an incarnation was started twice');
          started.add(effect.incarnation);
          if (effect.incarnation !== life.incarnation) throw new Error('a start of another incarnation');
        }
        if (before === undefined) continue;
        if (life.incarnation < before.incarnation || life.incarnation > before.incarnation + 1)
          throw new Error('incarnations count up by one');
        if (before.status === 'dead' && (life !== before || effects.length > 0)) throw new Error('death is final');
        const late = event !== undefined && event.type !== 'kill' && event.incarnation !== before.incarnation;
        if (late && (life !== before || effects.length > 0)) throw new Error('a late message was heard');
        if (life.status !== before.status && !effects.some((effect) => effect.type === 'announce'))
          throw new Error('a change that nobody hears of');
        if (life.recent.length > before.recent.length || (life.restarts > before.restarts && before.intent === undefined)) {
          counted.push(now);
          const inWindow = counted.filter((at) => now - at < rules.windowMs).length;
          if (inWindow > rules.maxRestarts) throw new Error('more restarts in the window than the budget');
          const wait = effects.find((effect) => effect.type === 'wait');
          if (wait?.type !== 'wait' || wait.delayMs > rules.backoffMaxMs) throw new Error('a restart without its backoff');
        }
        if (before.intent === 'kill' && event?.type === 'died' && !late && life.status !== 'dead') throw new Error('killed, and came back');
      }
    }),
    { numRuns: 2000 },
  );
  t.end();
});

t.test('an actor that keeps dying is restarted with doubling waits, then given up', (t) => {
  let { life } = born({ maxRestarts: 3, windowMs: 60_000, backoffMs: 100, backoffMaxMs: 300 });
  const waits: number[] = [];
  for (let now = 0; life.status !== 'dead'; now += 1000) {
    const step = advance(life, { type: 'died', incarnation: life.incarnation }, now);
    for (const effect of step.effects) if (effect.type === 'wait') waits.push(effect.delayMs);
    life = step.life;
    life = advance(life, { type: 'backoff-elapsed', incarnation: life.incarnation }, now).life;
    life = advance(life, { type: 'started', incarnation: life.incarnation }, now).life;
  }
  t.same(waits, [100, 200, 300]);
  t.equal(life.incarnation, 4);
  t.equal(life.failed, true);
  t.end();
});

t.test('restarts that lie further back than the window no longer count', (t) => {
  let { life } = born({ maxRestarts: 1, windowMs: 1000, backoffMs: 0, backoffMaxMs: 0 });
  for (let i = 0; i < 20; i++) {
    life = advance(life, { type: 'died', incarnation: life.incarnation }, i * 1001).life;
    life = advance(life, { type: 'backoff-elapsed', incarnation: life.incarnation }, i * 1001).life;
  }
  t.equal(life.status, 'starting');
  t.equal(life.restarts, 20);
  t.end();
});

t.test('a mistake that was seen twice ends an actor at once; what may mend by itself does not', (t) => {
  const policy = { maxRestarts: 9, windowMs: 60_000, backoffMs: 100, backoffMaxMs: 300 };
  const first = born(policy).life;
  t.match(advance(first, { type: 'died', incarnation: 1, hopeless: true }, 0).life, { status: 'dead', failed: true });
  const restarting = advance(first, { type: 'kill', restart: true }, 0).life;
  t.equal(advance(restarting, { type: 'died', incarnation: 1, hopeless: true }, 0).life.status, 'restarting', 'somebody asked for another');

  const death = (incarnation: number, error: Error, reason: DeathData['reason'] = 'constructor'): DeathData => ({
    incarnation,
    reason,
    lastStderr: [],
    cause: encodeError(error),
  });
  const pair = (a: Error, b: Error): boolean => isHopeless(death(1, a), death(2, b));
  t.equal(pair(new TypeError('x'), new TypeError('x')), true);
  t.equal(pair(new TypeError('x'), new TypeError('y')), false);
  t.equal(pair(new TypeError('x'), new ReferenceError('x')), false);
  t.equal(pair(new Error('ECONNREFUSED'), new Error('ECONNREFUSED')), false, 'it may be up next time');
  const fetchFailed = (): Error => new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') });
  t.equal(pair(fetchFailed(), fetchFailed()), false, 'what fetch() throws when nobody listens');
  const missing = (): Error => Object.assign(new Error('Cannot find module'), { code: 'ERR_MODULE_NOT_FOUND' });
  t.equal(pair(missing(), missing()), true);
  const option = (): Error => new RuntimeFailure('SINKFLEX_BAD_OPTION', 'cwd is no folder');
  t.equal(pair(option(), option()), true);
  const again = new TypeError('x');
  t.equal(isHopeless(undefined, death(1, again)), false);
  t.equal(isHopeless(death(1, again), death(3, again)), false, 'not in a row');
  t.equal(isHopeless(death(1, again, 'exit'), death(2, again)), false, 'it had lived');
  t.end();
});

t.test('a death with its host is not counted, but an actor without a budget does not come back from it', (t) => {
  const policy = { maxRestarts: 1, windowMs: 60_000, backoffMs: 100, backoffMaxMs: 300 };
  let { life } = born(policy);
  for (let i = 1; i <= 5; i++) {
    const step = advance(life, { type: 'died', incarnation: i, preempted: true }, i);
    t.same(step.effects.at(-1), { type: 'wait', incarnation: i + 1, delayMs: 0 });
    life = advance(step.life, { type: 'backoff-elapsed', incarnation: i + 1 }, i).life;
  }
  t.same(life.recent, []);
  t.equal(advance(born({ ...policy, maxRestarts: 0 }).life, { type: 'died', incarnation: 1, preempted: true }, 0).life.status, 'dead');
  t.end();
});
