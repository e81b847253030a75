// Calls that are made again: counted in executions, in their place, and said truly when they fail in the end.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { init, kill, ready, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { retryDelayMs } from '../../runtime/worker/retry.ts';
import { Ledger } from './fixtures/actors.ts';
import { seeded } from './fixtures/simulated.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
t.teardown(() => rmSync(folder, { recursive: true }));
const lines = (path: string): string[] => readFileSync(path, 'utf8').trim().split('\n');

t.test('an execution that its actor did not survive is repeated in the next incarnation, before later calls', async (t) => {
  const path = join(folder, 'again');
  const actor = spawn(Ledger, { args: [path], maxRestarts: 5, restartBackoffMs: 1 });
  await ready(actor);
  const patient = withOptions(actor, { maxRetries: 2 });
  t.equal(await patient.note('before'), 1);
  const answers = [patient.noteAndDie('deadly', 2), patient.note('after')];
  t.same(await Promise.all(answers), [3, 3]);
  t.same(lines(path), ['before 1', 'deadly 1', 'deadly 2', 'deadly 3', 'after 3']);
  await kill(actor);
});

t.test('no more executions than asked for; waiting for the next incarnation costs none', async (t) => {
  const path = join(folder, 'spent');
  const actor = spawn(Ledger, { args: [path], maxRestarts: 5, restartBackoffMs: 1 });
  await ready(actor);
  const once = actor.noteAndDie('never again', 9).catch((e: unknown) => e);
  t.match(await once, { code: 'SINKFLEX_ACTOR_DIED', details: { mayHaveRun: true, final: false } });
  // Made while it is down.
  t.match(
    await withOptions(actor, { maxRetries: 1 })
      .noteAndDie('twice', 9)
      .catch((e: unknown) => e),
    {
      code: 'SINKFLEX_ACTOR_DIED',
      details: { mayHaveRun: true },
    },
  );
  t.same(lines(path), ['never again 1', 'twice 2', 'twice 3']);
  // The actor is given up before the call's budget: what is said of it is still true.
  const frail = spawn(Ledger, { args: [path], maxRestarts: 1, restartBackoffMs: 1 });
  await ready(frail);
  t.match(
    await withOptions(frail, { maxRetries: 9 })
      .noteAndDie('in vain', 9)
      .catch((e: unknown) => e),
    { details: { mayHaveRun: true, final: true } },
  );
  await kill(actor);
});

t.test('errors that the method throws are repeated if they are asked to be, within the deadline', async (t) => {
  const actor = spawn(Ledger, { args: [join(folder, 'thrown')], isolation: 'thread' });
  await ready(actor);
  const seen: string[] = [];
  const retryOn = (error: Error): boolean => seen.push(error.message) > 0 && error.name === 'RangeError';
  t.equal(await withOptions(actor, { maxRetries: 2, retryOn }).failTimes(2), 2);
  t.same(seen, ['failure 1', 'failure 2']);
  t.match(
    await withOptions(actor, { maxRetries: 9, retryOn: () => false })
      .failTimes(9)
      .catch((e: unknown) => e),
    { message: 'failure 3' },
  );
  t.match(
    await withOptions(actor, { retryOn })
      .failTimes(9)
      .catch((e: unknown) => e),
    { message: 'failure 4' },
    'retries are counted',
  );
  t.match(
    await withOptions(actor, { maxRetries: 99, retryOn, timeoutMs: 250 })
      .failTimes(99)
      .catch((e: unknown) => e),
    {
      code: 'SINKFLEX_CALL_TIMEOUT',
      details: { mayHaveRun: true },
    },
  );
  const random = seeded(1);
  for (let failures = 1; failures < 12; failures++) {
    const full = Math.min(100 * 2 ** (failures - 1), 5000);
    const delay = retryDelayMs(failures, random);
    t.ok(delay >= full / 2 && delay <= full, `${delay}`);
  }
});
