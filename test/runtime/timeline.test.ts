// The timeline: what workers record of calls, and the trace that is made of it.
import fc from 'fast-check';
import t from 'tap';
import { buildTimeline, init, kill, shutdown, spawn, summary, type Timeline, type TraceEvent, timeline } from '../../runtime/index.ts';
import { addDurations, quantile } from '../../runtime/observe/durations.ts';
import type { SummaryRow } from '../../runtime/observe/facts.ts';
import { CallRecorder, RUN_FIELDS } from '../../runtime/observe/recorder.ts';
import { Counter, Probe } from './fixtures/actors.ts';

delete process.env.NODE_OPTIONS;
t.teardown(() => shutdown());

const call = (over: Partial<Parameters<CallRecorder['ran']>[0]> = {}) => ({
  actor: 1,
  name: 'a',
  incarnation: 1,
  method: 'm',
  caller: 0,
  call: 1,
  receivedAt: 1,
  startedAt: 1,
  durationMs: 1,
  ok: true,
  ...over,
});

t.test('a recorder keeps the last calls and counts the others', (t) => {
  const recorder = new CallRecorder(4);
  t.same(recorder.read().runs.length, 0);
  for (let i = 1; i <= 3; i++) recorder.ran(call({ call: i, method: `m${i}` }));
  const numbers = (): number[] => [...recorder.read().runs].filter((_, i) => i % RUN_FIELDS === 4);
  t.same([numbers(), recorder.read().lost], [[1, 2, 3], 0]);
  for (let i = 4; i <= 10; i++) recorder.ran(call({ call: i }));
  t.same([numbers(), recorder.read().lost], [[7, 8, 9, 10], 6]);
  t.same(recorder.read().methods, ['m1', 'm2', 'm3', 'm']);
  t.end();
});

/** Slices of a track lie in each other or apart. */
function overlaps({ traceEvents }: Timeline): [TraceEvent, TraceEvent][] {
  const tracks = new Map<number, TraceEvent[]>();
  for (const event of traceEvents) if (event.ph === 'X') tracks.set(event.tid, [...(tracks.get(event.tid) ?? []), event]);
  const found: [TraceEvent, TraceEvent][] = [];
  for (const slices of tracks.values()) {
    slices.sort((a, b) => a.ts - b.ts || b.dur! - a.dur!);
    const open: TraceEvent[] = [];
    for (const slice of slices) {
      while (open.length > 0 && open.at(-1)!.ts + open.at(-1)!.dur! <= slice.ts) open.pop();
      const around = open.at(-1);
      if (around !== undefined && slice.ts + slice.dur! > around.ts + around.dur! + 1e-6) found.push([around, slice]);
      open.push(slice);
    }
  }
  return found;
}

t.test('whatever was recorded, slices of a track never overlap and every arrow has two ends, the first before the second', (t) => {
  const time = fc.integer({ min: 1, max: 200 });
  const run = fc.record({
    actor: fc.integer({ min: 1, max: 3 }),
    call: fc.integer({ min: 1, max: 20 }),
    receivedAt: time,
    wait: time,
    durationMs: time,
    ok: fc.boolean(),
  });
  fc.assert(
    fc.property(
      fc.array(run, { maxLength: 40 }),
      fc.array(
        fc.record({
          from: fc.integer({ min: 0, max: 2 }),
          call: fc.integer({ min: 1, max: 20 }),
          actor: fc.integer({ min: 1, max: 3 }),
          at: time,
        }),
        { maxLength: 40 },
      ),
      (runs, sent) => {
        const [callee, caller] = [new CallRecorder(64), new CallRecorder(64)];
        for (const { wait, ...one } of runs) callee.ran(call({ ...one, startedAt: one.receivedAt + wait, durationMs: one.durationMs / 7 }));
        for (const one of sent) caller.sent({ ...one, method: 'm', worker: 1 });
        const trace = buildTimeline({
          workers: [
            { worker: 0, name: 'driver', pid: 10, recording: { ...caller.read(), timeOrigin: 1000 } },
            { worker: 1, name: 'w', pid: 11, recording: { ...callee.read(), timeOrigin: 1000 } },
          ],
          actors: [{ id: 1, name: 'a', kind: 'A' }],
          silent: [],
        });
        const ends = new Map<string, TraceEvent[]>();
        for (const event of trace.traceEvents) if (event.id !== undefined) ends.set(event.id, [...(ends.get(event.id) ?? []), event]);
        return (
          overlaps(trace).length === 0 &&
          trace.otherData.calls === runs.length &&
          trace.otherData.arrows === ends.size &&
          [...ends.values()].every(([s, f, ...more]) => s?.ph === 's' && f?.ph === 'f' && more.length === 0 && s.ts <= f.ts) &&
          trace.traceEvents.every(({ ts, dur }) => ts >= 0 && (dur === undefined || dur >= 0))
        );
      },
    ),
    { seed: 7, numRuns: 300 },
  );
  t.end();
});

t.test('durations by method', (t) => {
  const recorder = new CallRecorder();
  for (let i = 1; i <= 100; i++) recorder.ran(call({ durationMs: i }));
  recorder.ran(call({ actor: 99 }));
  const row = { kind: 'A', method: 'm', started: 0, failed: 0, running: 0, queued: 0 } as SummaryRow;
  addDurations([recorder.read(), null], new Map([[1, { kind: 'A' }]]), () => row);
  t.match(row, { recorded: 100, p50Ms: 50, p99Ms: 99, maxMs: 100 });
  t.equal(quantile(Float64Array.of(3), 0.01), 3);
  t.end();
});

t.test('calls between actors: a slice on the track of the callee, an arrow from inside the slice of the caller', async (t) => {
  await init({ onOutput: () => {} });
  await t.rejects(timeline(), { code: 'SINKFLEX_BAD_OPTION', message: /init\(\{ timeline: true \}\)/ });
  await shutdown();
  await init({ onOutput: () => {}, timeline: true });
  const counter = spawn(Counter, { name: 'sum' });
  const probe = spawn(Probe, { name: 'caller', isolation: 'thread' });
  await probe.addMany(counter, 5);
  await probe.fail('plain').catch(() => {});
  const trace = await timeline();
  const { traceEvents } = trace;
  t.match(trace.otherData, { calls: 7, arrows: 7, lost: 0, silent: [] });
  t.same(overlaps(trace), []);
  const track = (name: string): number => traceEvents.find((event) => event.name === 'thread_name' && event.args?.name === name)!.tid;
  const adds = traceEvents.filter(({ name, cat }) => name === 'add' && cat === 'call');
  t.equal(adds.length, 5);
  for (const add of adds) t.match(add, { tid: track('sum (Counter)'), args: { actor: 'sum', caller: 'caller', waitedMs: Number } });
  const many = traceEvents.find(({ name }) => name === 'addMany')!;
  const starts = traceEvents.filter(({ ph, tid }) => ph === 's' && tid === track('caller (Probe)'));
  t.equal(starts.length, 5);
  for (const { ts } of starts) t.ok(many.ts <= ts && ts <= many.ts + many.dur!);
  t.match(
    traceEvents.find(({ name }) => name === 'fail'),
    { cat: 'call,failed', args: { failed: true } },
  );
  t.equal(traceEvents.filter(({ ph, tid }) => ph === 's' && tid === track('driver')).length, 2);
  t.match((await summary({ where: { method: 'add' } })).items, [{ kind: 'Counter', started: 5, recorded: 5, p50Ms: Number }]);
  await kill(counter);
  t.equal((await timeline()).otherData.calls, 2, 'what a worker has recorded goes with it');
});
