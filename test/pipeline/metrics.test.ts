// Numbers on disk and their statistics: metrics.jsonl, TensorBoard files read back by a decoder of its own, cut-back, intervals.
import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { openMetrics } from '../../actors/pipeline/metric-files.ts';
import { isTiming, readMetrics, withoutTimings } from '../../actors/pipeline/metrics.ts';
import { AppendFile } from '../../actors/pipeline/run-folder-io.ts';
import {
  bootstrap,
  mean,
  median,
  pairedComparison,
  passAtK,
  passHatK,
  passRates,
  Rolling,
  sampleCounts,
  sampleStd,
  scoreInterval,
  wilson,
} from '../../actors/pipeline/statistics.ts';
import { crc32c } from '../../actors/pipeline/tensorboard.ts';

/** An independent reader: frames checked against a bitwise crc32c, then a generic protobuf walk. */
function decodeEvents(file: Buffer) {
  const masked = (data: Uint8Array) => {
    let c = ~0;
    for (const byte of data) {
      c ^= byte;
      for (let k = 0; k < 8; k++) c = (c >>> 1) ^ (0x82f63b78 & -(c & 1));
    }
    c = ~c >>> 0;
    return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
  };
  const message = (bytes: Buffer) => {
    const fields: { field: number; value: bigint | Buffer }[] = [];
    let at = 0;
    const varint = () => {
      let value = 0n;
      for (let shift = 0n; ; shift += 7n) {
        const byte = bytes[at++]!;
        value |= BigInt(byte & 127) << shift;
        if (byte < 128) return value;
      }
    };
    while (at < bytes.length) {
      const tag = Number(varint());
      const [field, wire] = [tag >> 3, tag & 7];
      if (wire === 0) fields.push({ field, value: varint() });
      else {
        const size = wire === 1 ? 8 : wire === 5 ? 4 : Number(varint());
        fields.push({ field, value: bytes.subarray(at, at + size) });
        at += size;
      }
    }
    return fields;
  };
  const events: { wallTime: number; step: number; version?: string; scalars: Record<string, number> }[] = [];
  for (let at = 0; at < file.length; ) {
    const length = Number(file.readBigUInt64LE(at));
    if (file.readUInt32LE(at + 8) !== masked(file.subarray(at, at + 8))) throw new Error('length checksum');
    const payload = file.subarray(at + 12, at + 12 + length);
    if (file.readUInt32LE(at + 12 + length) !== masked(payload)) throw new Error('payload checksum');
    const event = { wallTime: 0, step: 0, scalars: {} as Record<string, number> } as (typeof events)[number];
    for (const { field, value } of message(payload)) {
      if (field === 1) event.wallTime = (value as Buffer).readDoubleLE();
      if (field === 2) event.step = Number(value);
      if (field === 3) event.version = (value as Buffer).toString();
      if (field === 5) {
        for (const entry of message(value as Buffer)) {
          const parts = message(entry.value as Buffer);
          event.scalars[(parts.find((p) => p.field === 1)!.value as Buffer).toString()] = (
            parts.find((p) => p.field === 2)!.value as Buffer
          ).readFloatLE();
        }
      }
    }
    events.push(event);
    at += 16 + length;
  }
  return events;
}

const eventsOf = (folder: string) =>
  readdirSync(join(folder, 'tensorboard'))
    .sort()
    .flatMap((name) => decodeEvents(readFileSync(join(folder, 'tensorboard', name))));

t.test('records arrive in metrics.jsonl and in TensorBoard event files', async (t) => {
  const folder = t.testdir();
  const metrics = openMetrics(folder, { now: () => 1_750_000_000_500 });
  metrics.write({ 'sft/global_step': 300, 'sft/loss': 1.5 });
  metrics.write({ 'training/global_step': 0, 'val-core/desk/reward/mean@1': 0.25 });
  for (let step = 1; step <= 300; step++)
    metrics.write({ 'training/global_step': step, 'actor/pg_loss': -step / 8, 'timing_s/step': 0.5, 'actor/entropy': Number.NaN });
  metrics.close();
  const records = readMetrics(join(folder, 'metrics.jsonl'));
  t.equal(records.length, 302);
  t.same(records[1], { 'training/global_step': 0, 'val-core/desk/reward/mean@1': 0.25 });
  t.ok(Number.isNaN(records[2]!['actor/entropy']), 'a number that is none stays visible');
  const [opening, warm, , ...steps] = eventsOf(folder);
  t.match(opening, { version: 'brain.Event:2', wallTime: 1_750_000_000.5 });
  t.same(warm, { wallTime: 1_750_000_000.5, step: 300, scalars: { 'sft/loss': 1.5 } });
  t.match(steps.at(-1), { step: 300, scalars: { 'actor/pg_loss': -37.5, 'timing_s/step': 0.5 } });
  t.match(readdirSync(join(folder, 'tensorboard')), [/^events\.out\.tfevents\.1750000000\..+/]);
  t.equal(crc32c(Buffer.from('123456789')), 0xe3069283, 'the check value of CRC-32C');
});

t.test('a rewind forgets the steps after a checkpoint and keeps the warm start; writing goes on', async (t) => {
  const folder = t.testdir();
  let metrics = openMetrics(folder);
  for (let step = 1; step <= 40; step++) metrics.write({ 'sft/global_step': step, 'sft/loss': step });
  for (let step = 0; step <= 12; step++) metrics.write({ 'training/global_step': step, 'critic/score/mean': step });
  metrics.rewind(10);
  metrics.write({ 'training/global_step': 11, 'critic/score/mean': -1 });
  metrics.close();
  metrics = openMetrics(folder);
  metrics.rewind(11);
  metrics.write({ 'training/global_step': 12, 'critic/score/mean': -2 });
  metrics.close();
  const expected = [...Array.from({ length: 11 }, (_, i) => i), -1, -2];
  t.same(
    readMetrics(join(folder, 'metrics.jsonl'))
      .slice(40)
      .map((r) => r['critic/score/mean']),
    expected,
  );
  const events = eventsOf(folder);
  t.same(
    events.filter((e) => 'critic/score/mean' in e.scalars).map((e) => e.scalars['critic/score/mean']),
    expected,
  );
  t.equal(events.filter((e) => 'sft/loss' in e.scalars).length, 40);
});

t.test('what a crash tore is dropped, not continued', async (t) => {
  const folder = t.testdir();
  const first = openMetrics(folder);
  for (let step = 1; step <= 3; step++) first.write({ 'training/global_step': step, a: step });
  first.close();
  appendFileSync(join(folder, 'metrics.jsonl'), '{"training/global_step":4,"a"');
  const [events] = readdirSync(join(folder, 'tensorboard'));
  appendFileSync(join(folder, 'tensorboard', events!), Buffer.from([200, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]));
  const second = openMetrics(folder);
  second.rewind(3);
  second.write({ 'training/global_step': 4, a: 4 });
  second.close();
  t.same(
    readMetrics(join(folder, 'metrics.jsonl')).map((r) => r.a),
    [1, 2, 3, 4],
  );
  t.same(
    eventsOf(folder)
      .filter((e) => !e.version)
      .map((e) => e.step),
    [1, 2, 3, 4],
  );
});

t.test('metrics.csv: a row a record, columns that never move, the same after rewinds, crashes and reopening', async (t) => {
  const folder = t.testdir();
  const open = () => openMetrics(folder, { files: ['csv'] });
  const table = () => readFileSync(join(folder, 'metrics.csv'), 'utf8');
  let metrics = open();
  metrics.write({ 'sft/global_step': 1, 'sft/loss': 2.5 });
  metrics.write({ 'training/global_step': 1, 'reward/a,"b"': Number.NaN });
  const header = 'sft/global_step,sft/loss,training/global_step,"reward/a,""b"""';
  t.equal(table(), `${header}\n1,2.5,,\n,,1,NaN\n`);
  const size = table().length;
  metrics.write({ 'reward/a,"b"': 1e-7, 'training/global_step': 2 });
  t.equal(table().slice(size), ',,2,1e-7\n', 'a record of known names is appended');
  metrics.write({ 'training/global_step': 3, 'val-core/desk/reward/mean@1': 0.5 });
  t.equal(table(), `${header},val-core/desk/reward/mean@1\n1,2.5,,,\n,,1,NaN,\n,,2,1e-7,\n,,3,,0.5\n`, 'a new name is the last column');
  metrics.rewind(2);
  t.equal(table(), `${header}\n1,2.5,,\n,,1,NaN\n,,2,1e-7\n`);
  metrics.close();
  appendFileSync(join(folder, 'metrics.csv'), ',,3,');
  metrics = open();
  metrics.write({ 'training/global_step': 3, 'sft/loss': 4 });
  t.equal(table(), `${header}\n1,2.5,,\n,,1,NaN\n,,2,1e-7\n,4,3,\n`);
  metrics.clear();
  t.equal(table(), '\n');
  metrics.close();
  t.throws(() => readdirSync(join(folder, 'tensorboard')), { code: 'ENOENT' }, 'only what was asked for');
});

t.test('a full disk is one typed error', { skip: process.platform !== 'linux' }, async (t) => {
  // The kernel's own full device: every write to it fails with ENOSPC. It is only ever appended to.
  const full = new AppendFile('/dev/full');
  t.throws(() => full.append(Buffer.from('x')), { code: 'SINKFLEX_DISK_FULL', message: /\/dev\/full/ });
  t.throws(() => new AppendFile(join(t.testdir({ a: '' }), 'a', 'b')), { code: 'SINKFLEX_OUTPUT_UNWRITABLE' });
});

t.test('timings stand apart', async (t) => {
  t.same(withoutTimings({ 'timing_s/gen': 1, 'perf/throughput': 2, 'actor/lr': 3 }), { 'actor/lr': 3 });
  t.ok(isTiming('timing_per_token_ms/gen'));
});

t.test('intervals', async (t) => {
  const near = (a: number, b: number, message: string) => t.ok(Math.abs(a - b) < 5e-4, `${message}: ${a} is ${b}`);
  // Reference values: statsmodels proportion_confint(method='wilson').
  const half = wilson(50, 100);
  near(half.low, 0.4038, 'wilson 50/100 low');
  near(half.high, 0.5962, 'wilson 50/100 high');
  near(wilson(0, 10).high, 0.2775, 'wilson 0/10 high');
  t.equal(wilson(0, 10).low, 0);
  near(wilson(10, 10).low, 0.7225, 'wilson 10/10 low');
  t.equal(wilson(10, 10).high, 1);
  const values = Float64Array.from({ length: 200 }, (_, i) => (i % 10) / 10);
  const b = bootstrap(values);
  const standardError = sampleStd(values) / Math.sqrt(200);
  t.ok(Math.abs(b.high - b.low - 2 * 1.96 * standardError) < 0.02, 'about as wide as the normal interval');
  t.same(bootstrap(values), b, 'the same every time');
  t.same(scoreInterval([[1], [0], [1], [1]]), wilson(3, 4));
  t.match(scoreInterval([[1, 0], [1, 1], [0, 0], []]), { mean: 0.5, n: 3 });
  t.equal(mean([1, 2, 6]), 3);
  t.equal(median([5, 1, 3]), 3);
  t.equal(median([4, 1, 3, 2]), 2.5);
  t.equal(passAtK(4, 1, 1), 0.25);
  t.equal(passAtK(4, 1, 4), 1);
  near(passAtK(10, 3, 2), 1 - (7 * 6) / (10 * 9), 'pass@2');
  near(passHatK(10, 3, 2), (3 * 2) / (10 * 9), 'pass^2');
  t.equal(passHatK(4, 4, 4), 1);
  const paired = pairedComparison([0, 0, 1, 0.5], [1, 1, 1, 0.75]);
  t.match(paired, { better: 3, worse: 0, equal: 1, p: 2 / 8 }, 'of the 8 ways to flip three signs, two are as extreme');
  near(paired.difference.mean, 2.25 / 4, 'difference');
  t.match(pairedComparison([1, 0], [1, 0]), { p: 1, equal: 2, difference: { mean: 0, low: 0, high: 0 } });
  const zeros = new Float64Array(100);
  const some = (n: number) => zeros.map((_, i) => (i < n ? 1 : 0));
  t.ok(pairedComparison(zeros, some(20)).p < 0.001, 'twenty better, none worse');
  const even = pairedComparison(
    some(20),
    zeros.map((_, i) => (i >= 20 && i < 40 ? 1 : 0)),
  );
  t.ok(even.p > 0.8 && even.difference.low < 0 && even.difference.high > 0, 'as many better as worse');
  t.same(pairedComparison(zeros, some(20)), pairedComparison(zeros, some(20)), 'the same every time');
  t.strictSame(sampleCounts(1), [1]);
  t.strictSame(sampleCounts(6), [1, 2, 4, 6]);
  const rates = passRates([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1]], 4);
  near(rates[0]!.passAtK.mean, (0.5 + 0 + 1 + 1) / 4, 'pass@1 counts the short task too');
  t.equal(rates[0]!.passHatK.mean, rates[0]!.passAtK.mean, 'for one sample both are the mean');
  near(rates[1]!.passAtK.mean, (5 / 6 + 0 + 1) / 3, 'pass@2');
  near(rates[1]!.passHatK.mean, (1 / 6 + 0 + 1) / 3, 'pass^2');
  t.match(rates[2], { k: 4, passAtK: { n: 3, mean: 2 / 3 }, passHatK: { n: 3, mean: 1 / 3 } });
  const rolling = new Rolling(2);
  t.same(
    [1, 3, 5].map((v) => rolling.push(v)),
    [1, 2, 4],
  );
  const copy = new Rolling(2);
  copy.restore(rolling.snapshot());
  t.equal(copy.push(7), 6);
});
