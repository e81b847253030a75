// A checkpoint that was cut short or damaged is never taken for a whole one, whatever happened to it; the one before it is used.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, cpSync, existsSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t from 'tap';
import {
  checkpointName,
  checkpointSteps,
  newestWhole,
  readCheckpoint,
  sweepCheckpoints,
  verifyCheckpoint,
} from '../../actors/trainer/index.ts';
import { writeSmallCheckpoint } from './checkpoint-writer.ts';

const files = ['manifest.json', 'model/config.json', 'model/model.safetensors', 'optimizer.safetensors', 'trainer.json'];
const damaged = { code: 'SINKFLEX_CHECKPOINT_DAMAGED' };

t.test('every flipped bit, every cut and every missing file is found, and the file is named', async (t) => {
  const folder = t.testdir();
  const whole = join(folder, 'whole');
  await writeSmallCheckpoint(whole, 4);
  t.strictSame(readdirSync(whole, { recursive: true }).sort(), [...files, 'model'].sort());
  await verifyCheckpoint(whole);
  const harm = fc.record({
    file: fc.constantFrom(...files),
    kind: fc.constantFrom('flip', 'cut', 'longer', 'gone'),
    at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
    bit: fc.nat(7),
  });
  await fc.assert(
    fc.asyncProperty(harm, async ({ file, kind, at, bit }) => {
      const copy = join(folder, 'copy');
      rmSync(copy, { recursive: true, force: true });
      cpSync(whole, copy, { recursive: true });
      const path = join(copy, file);
      const bytes = readFileSync(path);
      const place = Math.floor(at * bytes.length);
      if (kind === 'flip') {
        // White space of the manifest may be anything.
        if (file === 'manifest.json' && /\s/.test(String.fromCharCode(bytes[place]!, bytes[place]! ^ (1 << bit)))) return;
        bytes[place]! ^= 1 << bit;
        writeFileSync(path, bytes);
      } else if (kind === 'cut') truncateSync(path, Math.min(place, bytes.length - 2));
      else if (kind === 'longer') appendFileSync(path, 'x');
      else rmSync(path);
      await t.rejects(verifyCheckpoint(copy), {
        ...damaged,
        message: file === 'manifest.json' ? /damaged/ : new RegExp(`damaged: ${file} `),
      });
    }),
    { seed: 7, numRuns: 80 },
  );
  t.rejects(verifyCheckpoint(join(folder, 'nowhere')), damaged);
});

t.test('the newest whole one is found behind damaged ones, which are told and set aside', async (t) => {
  const folder = t.testdir();
  const at = (step: number) => join(folder, checkpointName(step));
  for (const step of [2, 4, 6, 8]) await writeSmallCheckpoint(at(step), step);
  truncateSync(join(at(8), 'model', 'model.safetensors'), 10);
  rmSync(join(at(6), 'optimizer.safetensors'));
  const told: string[] = [];
  const onDamaged = (e: Error) => told.push(e.message);
  t.match(await newestWhole(folder, { onDamaged }), { step: 4, dir: at(4) });
  t.strictSame(checkpointSteps(folder), [2, 4, 6, 8], 'only looked at');
  t.match(await newestWhole(folder, { onDamaged, setAside: true }), { step: 4 });
  t.strictSame(checkpointSteps(folder), [2, 4]);
  t.ok(existsSync(join(folder, `damaged-${checkpointName(8)}`)));
  t.match(told.slice(2), [
    /0000000008 is damaged: model\/model\.safetensors has 10 bytes, \d+ were written/,
    /0000000006 is damaged: optimizer\.safetensors is missing/,
  ]);
  for (const step of [2, 4]) writeFileSync(join(at(step), 'trainer.json'), '');
  t.equal(await newestWhole(folder, { onDamaged }), undefined);
});

t.test('a process killed while it writes leaves the checkpoint before, at every point of the writing', async (t) => {
  const folder = t.testdir();
  const at = (step: number) => join(folder, checkpointName(step));
  await writeSmallCheckpoint(at(1), 1);
  for (const point of ['begun', 'half', 'written']) {
    const child = fork(fileURLToPath(new URL('./checkpoint-writer.js', import.meta.url)), [at(2), point], { execArgv: [] });
    t.strictSame(await once(child, 'exit'), [null, 'SIGKILL'], point);
    t.ok(
      readdirSync(folder).some((name) => name.includes('.tmp-')),
      'something was begun',
    );
    const found = await newestWhole(folder, { onDamaged: () => t.fail('a half-written one has no place yet') });
    t.match(readCheckpoint(found!.dir), { step: 1 });
    sweepCheckpoints(folder);
    t.strictSame(readdirSync(folder), [checkpointName(1)]);
  }
  t.ok(statSync(at(1)).isDirectory());
});
