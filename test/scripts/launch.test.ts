// The whole job in miniature through the command line: launch, what it leaves, evaluate, resume; and Ctrl-C in the middle of it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, truncateSync, watch } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { readMetrics, TRAINING_STEP, type TrainingResult } from '../../actors/index.ts';
import { os } from '../../kernels/index.ts';
import { train } from '../../scripts/index.ts';
import { lookUntil } from '../until.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));

async function sinkflex(words: string[]) {
  const child = spawn(process.execPath, [entry, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, errors] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, out, errors };
}

const pidsOf = (folder: string): number[] =>
  (JSON.parse(readFileSync(join(folder, 'actors.json'), 'utf8')) as { pid?: number }[]).flatMap((a) => a.pid ?? []);

/** Neither running nor on its way out. */
const gone = (pid: number): boolean => !existsSync(`/proc/${pid}`) || os.processState(pid) === 'Z';

t.test('launch, evaluate, resume', async (t) => {
  const folder = join(t.testdir(), 'run');
  const run = await sinkflex(['launch', 'tiny', '--seed', '3', '--output', folder]);
  t.equal(run.code, 0, run.errors);
  t.match(run.errors, /warm start[\s\S]*validation before[\s\S]*grpo[\s\S]*validation after/);
  t.match(
    run.out,
    /before GRPO[\s\S]*after GRPO[\s\S]*do-nothing +0\.000[\s\S]*expert +1\.000[\s\S]*best fixed script[\s\S]*4 steps, 64 trajectories/,
  );
  const files = readdirSync(folder);
  for (const name of [
    'config.yaml',
    'metrics.jsonl',
    'tensorboard',
    'trajectories',
    'checkpoints',
    'curve.svg',
    'transcripts',
    'actors.json',
    'ledger.json',
    'result.json',
    'report.html',
  ])
    t.ok(files.includes(name), name);
  t.same(
    readMetrics(join(folder, 'metrics.jsonl'))
      .filter((r) => 'actor/pg_loss' in r)
      .map((r) => r[TRAINING_STEP]),
    [1, 2, 3, 4],
  );
  t.match(readFileSync(join(folder, 'curve.svg'), 'utf8'), /<svg[\s\S]*GRPO step/);
  t.match(readFileSync(join(folder, 'transcripts/failed.txt'), 'utf8'), /^Failed episode: validation/);
  t.ok(pidsOf(folder).every(gone), 'no actor is left');

  const again = await sinkflex(['launch', '--resume', folder, 'trainer.total_training_steps=6', '--json']);
  t.equal(again.code, 0, again.errors);
  t.match(JSON.parse(again.out) as TrainingResult, { steps: 6, seed: 3 });
  t.same(
    readMetrics(join(folder, 'metrics.jsonl'))
      .filter((r) => 'actor/pg_loss' in r)
      .map((r) => r[TRAINING_STEP]),
    [1, 2, 3, 4, 5, 6],
  );

  const rows = await sinkflex(['data', 'export', folder, '--format', 'parquet', '--phase', 'train', '--steps', '5..6']);
  t.equal(rows.code, 0, rows.errors);
  t.match(rows.out, /export\.parquet: \d\d trajectories/);
  const none = await sinkflex(['data', 'export', folder, '--steps', 'late']);
  t.equal(none.code, 2);

  const score = await sinkflex(['evaluate', folder, 'data.val_size=8', '--json']);
  t.equal(score.code, 0, score.errors);
  t.match(JSON.parse(score.out) as TrainingResult, { after: { n: 8 }, steps: 0 });

  const checkpoints = join(folder, 'checkpoints');
  const [older, newest] = readdirSync(checkpoints).sort().slice(-2) as [string, string];
  truncateSync(join(checkpoints, newest, 'optimizer.safetensors'), 100);
  const damaged = await sinkflex(['launch', '--resume', join(checkpoints, newest)]);
  t.equal(damaged.code, 2, damaged.errors);
  t.match(damaged.errors, new RegExp(`SINKFLEX_CHECKPOINT_DAMAGED.*${newest}.*older.*launch --resume ${join(checkpoints, older)}`));
  const before = await sinkflex(['launch', '--resume', folder, 'trainer.total_training_steps=6']);
  t.equal(before.code, 0, before.errors);
  t.match(before.errors, new RegExp(`warning: .*${newest} is damaged: optimizer.safetensors has 100 bytes.*an older one is used`));
});

t.test('the same from a program', async (t) => {
  const phases: string[] = [];
  const small = { preset: 'tiny', sft: { total_steps: 2 }, 'trainer.total_training_steps': 1, data: { val_size: 4 } };
  const result = await train({
    ...small,
    output: join(t.testdir(), 'run'),
    onProgress: (event) => event.kind === 'end' && phases.push(event.phase),
  });
  t.match(result, { steps: 1, after: { n: 4 } });
  t.same(phases, ['start', 'warm start', 'validation', 'grpo', 'validation']);
  await t.rejects(train({ ...small, output: join(t.testdir(), 'stopped'), signal: AbortSignal.abort() }), { code: 'SINKFLEX_ABORTED' });
  await t.rejects(train({ preset: 'tiny', 'rollout.m': 4 }), { code: 'SINKFLEX_SETTINGS', message: /train\(\)/ });
});

t.test('Ctrl-C ends everything within two seconds, exit code 130', { skip: process.platform !== 'linux' }, async (t) => {
  const root = t.testdir({ run: {} });
  const folder = join(root, 'run');
  const child = spawn(
    process.execPath,
    [entry, 'launch', 'tiny', 'trainer.total_training_steps=1000000', 'trainer.test_freq=0', '--output', folder],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const exited = once(child, 'exit');
  // The third step is in the metrics: all actors are at work.
  const deadline = AbortSignal.timeout(40_000);
  const changes = watch(folder, { signal: deadline });
  while (!readMetrics(join(folder, 'metrics.jsonl')).some((r) => r[TRAINING_STEP] === 3))
    await Promise.race([once(changes, 'change'), exited]);
  changes.close();
  const pids = pidsOf(folder);
  t.ok(pids.length >= 4);
  const began = performance.now();
  child.kill('SIGINT');
  t.same(await exited, [130, null]);
  t.match(errors, new RegExp(`stopped; the run is in ${folder}, .*step \\d+ with\n +npx sinkflex launch --resume ${folder}`));
  const tookMs = Math.round(performance.now() - began);
  t.ok(tookMs < 30_000, `ended after ${tookMs} ms`);
  // Process workers die with their parent; the kernel delivers that at once, their ends may take a moment under load.
  const left = () => pids.filter((pid) => !gone(pid));
  t.same(await lookUntil(left, ({ length }) => length === 0), [], 'nothing is left behind');
});
