// Runs whose newest checkpoint is damaged: they say so, go on from the one before, and end with the bits of the run left alone.
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { ProgressEvent } from '../../actors/index.ts';
import { PATIENCE_MS } from '../until.ts';
import { balanced, essence, killing, learnt, ledger, root, start } from './tiny-run.ts';
import { few } from './tiny-settings.ts';

const checkpoint = (name: string, step: number, ...file: string[]) =>
  join(root, name, 'checkpoints', `step-${String(step).padStart(10, '0')}`, ...file);

function flip(path: string): void {
  const bytes = readFileSync(path);
  bytes[bytes.length >> 1]! ^= 1;
  writeFileSync(path, bytes);
}

/** The trainer's process writes it while training goes on. Blocks, so that the run does not go on meanwhile. */
function untilWritten(folder: string): void {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  for (const end = Date.now() + PATIENCE_MS; !existsSync(folder) && Date.now() < end; ) Atomics.wait(cell, 0, 0, 5);
}

t.test('damaged checkpoints are told, set aside, and change nothing that is learnt', async (t) => {
  await start('whole', { mode: 'sync', ...few });
  const whole = learnt(await essence('whole'));

  t.test('of a run that is resumed', async (t) => {
    await start('resumed', { mode: 'sync', ...few, 'trainer.total_training_steps': 4 });
    flip(checkpoint('resumed', 4, 'model', 'model.safetensors'));
    const notes: string[] = [];
    const on = (e: ProgressEvent) => e.kind === 'note' && notes.push(`${e.level}: ${e.text}`);
    const exact = start('resumed', { output: null, resume: checkpoint('resumed', 4) });
    await t.rejects(exact, {
      code: 'SINKFLEX_CHECKPOINT_DAMAGED',
      message: /model\.safetensors is not what was written.*--resume .*step-0000000002/,
    });
    const again = { mode: 'sync', ...few, output: null, resume: join(root, 'resumed') };
    t.match(await start('resumed', again, { on }), { steps: 5 });
    t.match(notes, [/^warning: the checkpoint .*step-0000000004 is damaged: model\/model\.safetensors .*an older one is used/]);
    t.ok(existsSync(checkpoint('resumed', 4).replace('step-', 'damaged-step-')));
    t.strictSame(learnt(await essence('resumed')), whole);
  });

  t.test('of a run whose trainer dies', async (t) => {
    const k = killing('killed', { 3: ['trainer'] });
    const on = (e: ProgressEvent) => {
      const damaged = existsSync(checkpoint('killed', 2).replace('step-', 'damaged-step-'));
      if (e.kind === 'advance' && e.phase === 'grpo' && e.done === 3 && !damaged) {
        untilWritten(checkpoint('killed', 2));
        rmSync(checkpoint('killed', 2, 'optimizer.safetensors'));
      }
      k.on(e);
    };
    t.match(await start('killed', { mode: 'sync', ...few }, { on }), { steps: 5, restarts: 1 });
    t.match(
      k.notes.join('\n'),
      /step-0000000002 is damaged: optimizer\.safetensors is missing; an older one is used\n.*goes back to step 0/,
    );
    t.strictSame(learnt(await essence('killed')), whole);
    const l = ledger('killed');
    t.ok(balanced(l) && l.trained === 40, JSON.stringify(l));
  });

  t.test('and a run that is told to go on from an earlier one keeps the later ones under other names', async (t) => {
    await start('whole', { mode: 'sync', ...few, output: null, resume: checkpoint('whole', 2) });
    t.strictSame(learnt(await essence('whole')), whole);
    const names = readdirSync(join(root, 'whole', 'checkpoints')).sort();
    t.strictSame(
      names.filter((n) => n.startsWith('abandoned-')),
      ['abandoned-step-0000000004', 'abandoned-step-0000000005'],
    );
  });
});
