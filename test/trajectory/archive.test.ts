// Archives against a small store that checks signatures: parts, resumption, faults, secrets; and a run that is copied, lost and goes on.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { download, upload } from '../../actors/archive/index.ts';
import { S3, type S3Options } from '../../actors/archive/s3.ts';
import { archivedRuns, RunFolder, restoreRun, saveRun } from '../../actors/index.ts';
import { toRecord } from '../../actors/trajectory/index.ts';
import { keys, s3Server } from './s3-server.ts';
import { trajectory } from './trajectories.ts';

const store = await s3Server();
t.teardown(() => store.close());
const open = (o: Partial<S3Options> = {}) =>
  new S3({ bucket: 'bucket', endpoint: store.endpoint, ...keys, retries: 3, backoffMs: 1, timeoutMs: 30_000, ...o });
const requests = async (work: () => Promise<unknown>): Promise<string[]> => {
  const before = store.log.length;
  await work();
  return store.log.slice(before).map((line) => line.replace(/upload%26\d/, 'ID'));
};
const part = 1000;

t.test('a file goes there and back under any name, and is not sent twice', async (t) => {
  const folder = t.testdir({ small: 'twelve bytes', large: Buffer.alloc(3500, 'abcdefg') });
  const s3 = open();
  for (const key of ['p/small', "p/a b+c&d=ü!'()*.txt"]) {
    t.ok(await upload(s3, key, join(folder, 'small')));
    t.notOk(await upload(s3, key, join(folder, 'small')), 'the same is there');
    t.ok(await download(s3, key, join(folder, 'back', key)));
    t.notOk(await download(s3, key, join(folder, 'back', key)));
    t.equal(readFileSync(join(folder, 'back', key), 'utf8'), 'twelve bytes');
  }
  writeFileSync(join(folder, 'small'), 'other bytes.');
  t.ok(await upload(s3, 'p/small', join(folder, 'small')), 'content counts, not size');
  await upload(s3, 'p/large', join(folder, 'large'), part);
  t.same(store.objects.get('p/large')!.body, readFileSync(join(folder, 'large')));
  await download(s3, 'p/large', join(folder, 'large2'), part);
  t.same(readFileSync(join(folder, 'large2')), readFileSync(join(folder, 'large')));
  const listed = [];
  for await (const o of s3.list('p/')) listed.push(o);
  t.same(listed, [
    { key: "p/a b+c&d=ü!'()*.txt", bytes: 12 },
    { key: 'p/large', bytes: 3500 },
    { key: 'p/small', bytes: 12 },
  ]);
});

t.test('what was cut short goes on with what is missing', async (t) => {
  const folder = t.testdir({ large: Buffer.alloc(5500, 'abcdefghijk') });
  const path = join(folder, 'large');
  store.faults.push(...Array.from({ length: 4 }, () => ({ when: /PUT .*partNumber=5/, fault: 'unavailable' as const })));
  await t.rejects(upload(open(), 'r/large', path, part), { code: 'SINKFLEX_ARCHIVE', message: /503 SlowDown \(4 tries\)/ });
  t.same(
    (await requests(() => upload(open(), 'r/large', path, part))).filter((line) => line.startsWith('PUT')).length,
    2,
    'four parts had arrived, the fifth and sixth are sent',
  );
  t.same(store.objects.get('r/large')!.body, readFileSync(path));
  t.equal(store.uploads.size, 0);
  // The file changes between two attempts in a part that had not been sent: the checksum of the first attempt is not its own.
  writeFileSync(path, Buffer.alloc(5500, 'x'));
  store.faults.push(...Array.from({ length: 4 }, () => ({ when: /PUT .*partNumber=5/, fault: 'unavailable' as const })));
  await t.rejects(upload(open(), 'r/large', path, part));
  const changed = Buffer.alloc(5500, 'x');
  changed.write('changed', 5400);
  writeFileSync(path, changed);
  await upload(open(), 'r/large', path, part);
  await download(open(), 'r/large', join(folder, 'copy'), part);
  t.same(readFileSync(join(folder, 'copy')), changed);

  store.faults.push(...Array.from({ length: 4 }, () => ({ when: /GET \/bucket\/r\/large$/, fault: 'torn' as const })));
  await t.rejects(download(open(), 'r/large', join(folder, 'again'), part), { code: 'SINKFLEX_ARCHIVE' });
  writeFileSync(join(folder, 'again.part'), changed.subarray(0, 3000));
  t.equal((await requests(() => download(open(), 'r/large', join(folder, 'again'), part))).filter((l) => l.startsWith('GET')).length, 3);
  t.same(readFileSync(join(folder, 'again')), changed);
  writeFileSync(join(folder, 'bad.part'), Buffer.alloc(3000));
  await t.rejects(download(open(), 'r/large', join(folder, 'bad'), part), { message: /not what was stored/ });
  t.ok(await download(open(), 'r/large', join(folder, 'bad'), part), 'what was wrong is thrown away');
});

t.test('passing failures are tried again, others are told at once; no message holds a secret', async (t) => {
  const folder = t.testdir({ file: 'content' });
  const path = join(folder, 'file');
  for (const fault of ['unavailable', 'cut', 'error in 200'] as const) {
    store.faults.push({ when: /PUT/, fault });
    t.ok(await upload(open(), `f/${fault}`, path), fault);
  }
  store.faults.push({ when: /HEAD/, fault: 'silent' });
  t.ok(await upload(open({ timeoutMs: 500 }), 'f/silent', path), 'a request has a deadline');
  store.faults.push({ when: /HEAD/, fault: 'silent' });
  const failures: Error[] = [];
  const failing = async (work: Promise<unknown>, message: RegExp) => {
    const e = (await work.then(
      () => undefined,
      (error: Error) => error,
    )) as Error;
    t.match(e, { code: 'SINKFLEX_ARCHIVE', message }, String(message));
    failures.push(e);
  };
  await failing(
    upload(open({ timeoutMs: 200, retries: 0 }), 'f/x', path),
    /HEAD http.*\/bucket\/f\/x: no answer within 200 ms \(one try\)/,
  );
  await failing(upload(open({ secretAccessKey: 'wrong/secret' }), 'f/x', path), /HTTP 403 \(one try\)/);
  await failing(open({ secretAccessKey: 'wrong/secret' }).put('f/x', Buffer.from(''), ''), /HTTP 403 SignatureDoesNotMatch \(one try\)/);
  await failing(open({ region: 'elsewhere' }).put('f/x', Buffer.from(''), ''), /AuthorizationHeaderMalformed/);
  await failing(open({ endpoint: 'http://127.0.0.1:1', retries: 1 }).put('f/x', Buffer.from(''), ''), /ECONNREFUSED|bad port.*\(2 tries\)/);
  await failing(download(open(), 'f/none', join(folder, 'none')), /there is no f\/none/);
  t.throws(() => S3.fromEnvironment('bucket', { env: {} }), { code: 'SINKFLEX_ARCHIVE', message: /AWS_ACCESS_KEY_ID/ });
  for (const e of failures) t.notMatch(JSON.stringify([e.message, e.stack, e]), /test\/secret|wrong\/secret/);
  const abort = new AbortController();
  const s3 = new S3({ bucket: 'bucket', endpoint: store.endpoint, ...keys }, abort.signal);
  store.faults.push({ when: /HEAD/, fault: 'silent' });
  const stuck = upload(s3, 'f/stuck', path);
  abort.abort(new Error('enough'));
  await t.rejects(stuck, /enough/);
  // The request may have ended before it was begun.
  store.faults.length = 0;
});

t.test('a run under way is copied, and what is restored is the run of that moment', async (t) => {
  const at = t.testdir({ run: { 'config.yaml': 'seed: 1\n', 'metrics.jsonl': '{"a":1}\n' } });
  const folder = RunFolder.open(join(at, 'run'));
  const checkpoint = folder.checkpoint(10);
  mkdirSync(join(checkpoint, 'model'), { recursive: true });
  for (const name of ['manifest.json', 'optimizer.safetensors', 'model/model.safetensors']) writeFileSync(join(checkpoint, name), name);
  for (const name of ['.lock', 'curve.svg.tmp-12']) writeFileSync(join(at, 'run', name), '');
  const db = await folder.openTrajectories();
  const step = (n: number) =>
    db.step({
      step: n,
      lineage: 0,
      records: [toRecord(trajectory(n, 0), { step: n, phase: 'train', text: '' })],
      consumed: [{ task: n, sample: 0 }],
    });
  for (let n = 0; n < 20; n++) await step(n);
  const url = 's3://bucket/experiments/';
  const o = { env: store.env };
  const log = await requests(() => saveRun(folder, url, o));
  const sent = log.flatMap((line) => /^PUT \/bucket\/experiments\/run\/(.*)$/.exec(line)?.[1] ?? []);
  t.equal(sent.at(-1), 'checkpoints/step-0000000010/manifest.json', 'what makes a checkpoint whole goes last');
  t.notMatch(sent.join('\n'), /lock|tmp-|copy-/);
  for (let n = 20; n < 30; n++) await step(n);
  const again = await saveRun(folder, url, o);
  t.match(again, { copied: 1, kept: 6 }, 'the database alone has changed (its log)');
  const copies = { ...o, stored: new Map<string, string>() };
  await saveRun(folder, url, copies);
  writeFileSync(join(at, 'run', 'metrics.jsonl'), '{"a":1}\n{"a":2}\n');
  const asked = await requests(() => saveRun(folder, url, copies));
  t.same(
    [...new Set(asked.flatMap((line) => /run\/(.*)$/.exec(line)?.[1] ?? []))].filter((name) => !name.startsWith('trajectories/')),
    ['metrics.jsonl'],
    'nothing is asked of files that stand as they were stored',
  );
  await db.close();
  t.same(await archivedRuns(url, o), ['run']);
  await new S3({ bucket: 'bucket', endpoint: store.endpoint, ...keys }).put(
    'experiments/run/checkpoints/step-0000000005/trainer.json',
    Buffer.from('x'),
    '',
  );
  const back = join(at, 'back');
  await t.rejects(restoreRun('s3://bucket/experiments/other', back, o), { message: /there is no run/ });
  store.faults.push({ when: /GET .*metrics/, fault: 'denied' });
  await t.rejects(restoreRun(`${url}run`, back, o), { code: 'SINKFLEX_ARCHIVE' });
  t.match(await restoreRun(`${url}run`, back, o), { copied: 3, kept: 4 }, 'an interrupted call is gone on with');
  await t.rejects(restoreRun(`${url}run`, back, o), { code: 'SINKFLEX_OUTPUT_EXISTS' }, 'and a whole run is not overwritten');
  const restored = RunFolder.open(back);
  t.same(restored.checkpoints(), [10]);
  t.equal(readFileSync(join(restored.checkpoint(10), 'model', 'model.safetensors'), 'utf8'), 'model/model.safetensors');
  const stored = (await restored.readTrajectories())!;
  t.equal(await stored.consumedCount(), 30);
  t.same(
    await stored.stepsOf('train'),
    Array.from({ length: 30 }, (_, n) => n),
  );
  await stored.close();
  store.objects.set('experiments/evil/config.yaml', { body: Buffer.from(''), sha256: '', etag: '' });
  store.objects.set('experiments/evil/../../escaped', { body: Buffer.from(''), sha256: '', etag: '' });
  await t.rejects(restoreRun(`${url}evil`, join(at, 'evil'), o), { message: /no file of a run|is not what/ });
  t.throws(() => readFileSync(join(at, '..', 'escaped')), { code: 'ENOENT' });
});
