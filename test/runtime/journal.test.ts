// The journal: what was promised is there after any crash; what was not is not half there.
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Journal } from '../../runtime/head/index.ts';

const base = mkdtempSync(join(tmpdir(), 'sf-journal-'));
t.teardown(() => rmSync(base, { recursive: true }));

const durable = (journal: Journal): Promise<void> => new Promise((resolve) => journal.whenDurable(resolve));

async function write(folder: string, records: unknown[]): Promise<void> {
  const { journal } = await Journal.open(folder);
  for (const record of records) journal.append(record);
  await journal.close();
}

t.test('cut at any byte, it holds the records that were whole, and goes on from there', async (t) => {
  const records = [
    { a: 1 },
    { text: 'x'.repeat(40), list: [1, 2, 3] },
    new Uint8Array([1, 2, 3, 4, 5]),
    { b: undefined, c: new Uint8Array(9) },
  ];
  const whole = join(base, 'whole');
  await write(whole, records);
  const log = join(whole, '0.log');
  const size = statSync(log).size;
  // Where each record ends.
  const ends: number[] = [];
  for (let n = 0; n <= records.length; n++) {
    const folder = join(base, `prefix-${n}`);
    await write(folder, records.slice(0, n));
    ends.push(statSync(join(folder, '0.log')).size);
  }
  t.equal(ends.at(-1), size);
  const folder = join(base, 'cut');
  for (let cut = 0; cut <= size; cut++) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    copyFileSync(log, join(folder, '0.log'));
    truncateSync(join(folder, '0.log'), cut);
    const kept = ends.filter((end, n) => n > 0 && end <= cut).length;
    const first = await Journal.open(folder);
    if (JSON.stringify(first.records) !== JSON.stringify(records.slice(0, kept))) t.fail(`cut at ${cut}: ${JSON.stringify(first.records)}`);
    first.journal.append('after');
    await first.journal.close();
    const second = await Journal.open(folder);
    await second.journal.close();
    if (second.cut !== 0 || second.records.length !== kept + 1 || second.records.at(-1) !== 'after') t.fail(`cut at ${cut}: not continued`);
  }
  t.pass(`${size + 1} cuts`);
});

t.test('a flipped bit ends the records there', async (t) => {
  const folder = join(base, 'flipped');
  await write(folder, ['one', 'two', 'three']);
  const path = join(folder, '0.log');
  const bytes = readFileSync(path);
  for (let at = 8; at < bytes.length; at++) {
    const damaged = Buffer.from(bytes);
    damaged[at] = damaged[at]! ^ 0x10;
    writeFileSync(path, damaged);
    const { journal, records } = await Journal.open(folder);
    await journal.close();
    if (!['', 'one', 'one,two'].includes(records.join())) t.fail(`bit at ${at}: ${records.join()}`);
  }
  t.pass();
});

t.test('actions wait for the disk, in order, and share a sync', async (t) => {
  const { journal } = await Journal.open(join(base, 'order'));
  const seen: number[] = [];
  journal.whenDurable(() => seen.push(0));
  t.same(seen, [0], 'nothing to wait for');
  for (let i = 1; i <= 100; i++) {
    journal.append({ i });
    journal.whenDurable(() => seen.push(i));
  }
  t.same(seen, [0], 'not before it is on disk');
  await durable(journal);
  t.same(
    seen,
    Array.from({ length: 101 }, (_, i) => i),
  );
  await journal.close();
});

t.test('compaction: the state is the snapshot and what came after, at any moment of a crash', async (t) => {
  const folder = join(base, 'compact');
  const { journal } = await Journal.open(folder, 2000);
  let sum = 0;
  journal.makeSnapshot = () => ({ sum });
  const states: string[] = [];
  const crash = join(base, 'crash');
  for (let i = 1; i <= 300; i++) {
    sum += i;
    journal.append({ add: i });
    if (i % 7 === 0) await durable(journal);
    if (i % 50 !== 0) continue;
    // Files as a crash at this moment would leave them, an unfinished snapshot included.
    await durable(journal);
    rmSync(crash, { recursive: true, force: true });
    mkdirSync(crash);
    for (const name of readdirSync(folder)) copyFileSync(join(folder, name), join(crash, name));
    writeFileSync(join(crash, '99999.snapshot.new'), 'half');
    const again = await Journal.open(crash);
    await again.journal.close();
    const total =
      ((again.snapshot as { sum: number } | undefined)?.sum ?? 0) +
      again.records.reduce<number>((a, r) => a + (r as { add: number }).add, 0);
    states.push(`${total}`);
    t.equal(total, sum);
    t.ok(readdirSync(crash).length <= 2, 'the rest is swept');
  }
  await journal.close();
  const files = readdirSync(folder).sort();
  t.ok(Number.parseInt(files[0]!, 10) >= 2, `rotated: ${files.join()}`);
  t.ok(statSync(join(folder, files[0]!)).size < 4000, 'bounded');
});

t.test('a snapshot that does not pass its checksum is an error, not a fresh start', async (t) => {
  const folder = join(base, 'damaged');
  const { journal } = await Journal.open(folder, 10);
  journal.makeSnapshot = () => ({ state: 'x'.repeat(100) });
  journal.append('a');
  await journal.close();
  const path = join(folder, '1.snapshot');
  const bytes = readFileSync(path);
  bytes[60] = bytes[60]! ^ 1;
  writeFileSync(path, bytes);
  await t.rejects(Journal.open(folder), { code: 'SINKFLEX_JOURNAL_DAMAGED' });
});
