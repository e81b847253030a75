// Progress on a terminal and in a log, the final table, the stop signal.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import type { TrainingResult } from '../../actors/index.ts';
import { Display } from '../../scripts/display.ts';
import { finalTable, resultLine } from '../../scripts/report.ts';
import { duration, table } from '../../scripts/text.ts';

// The test runner's hooks would triple the start of every command.
delete process.env.NODE_OPTIONS;

const result: TrainingResult = {
  folder: `${process.cwd()}/runs/x`,
  mode: 'async',
  seed: 1,
  before: { mean: 0.25, low: 0.21, high: 0.294, n: 400 },
  after: { mean: 0.81, low: 0.769, high: 0.845, n: 400 },
  validation: { tasks: 400, n: 1, temperature: 1 },
  passRates: [],
  also: [],
  diagnostics: {},
  labels: {},
  baselines: [
    { name: 'do-nothing', score: 0 },
    { name: 'expert', score: 1 },
    { name: 'never-refund', score: 0.28 },
    { name: 'always-refund', score: 0.11 },
  ],
  steps: 150,
  parameters: 367_000,
  trajectories: 38_400,
  tokens: 2_000_000,
  seconds: { warmStart: 50, grpo: 170, validation: 20, total: 245 },
  restarts: 1,
};

t.test('a log gets a line when a phase begins, now and then, and when it ends', async (t) => {
  const lines: string[] = [];
  let now = 0;
  const display = new Display({ output: { write: (text) => lines.push(text) }, now: () => now, lineIntervalMs: 5000 });
  display.listen({ kind: 'begin', phase: 'grpo', total: 100, budgetSeconds: 60 });
  for (let done = 1; done <= 40; done++) {
    now += 500;
    if (done === 15)
      display.listen({
        kind: 'actors',
        states: ['alive', 'alive', 'restarting', 'dead'].map((state, i) => ({ name: `rollout-${i}`, state })),
      });
    if (done === 25)
      display.listen({ kind: 'actors', states: ['alive', 'alive', 'alive'].map((state, i) => ({ name: `rollout-${i}`, state })) });
    display.listen({ kind: 'advance', phase: 'grpo', done, numbers: { score: done / 100, tokensPerSecond: 12_345, staleness: 0.5 } });
  }
  display.listen({ kind: 'begin', phase: 'validation', total: 100, label: 'after step 40' });
  display.listen({ kind: 'end', phase: 'validation', seconds: 2.25, numbers: { val: 0.5 } });
  display.listen({ kind: 'note', level: 'warning', text: 'rollout-0 died and was restarted' });
  display.listen({ kind: 'end', phase: 'grpo', seconds: 20, numbers: { val: 0.5 } });
  display.close();
  t.same(lines, [
    '[00:00] grpo (100) ...\n',
    '[00:05] grpo 10/100 · score 0.100 · 12,345 trained tokens/s · staleness 0.50 · 45 s left\n',
    '[00:10] grpo 20/100 · score 0.200 · 12,345 trained tokens/s · staleness 0.50 · 2 actors alive, rollout-2 restarting · 40 s left\n',
    '[00:15] grpo 30/100 · score 0.300 · 12,345 trained tokens/s · staleness 0.50 · 3 actors alive · 35 s left\n',
    '[00:20] grpo 40/100 · score 0.400 · 12,345 trained tokens/s · staleness 0.50 · 3 actors alive · 30 s left\n',
    '[00:20] validation after step 40 (100) ...\n',
    '[00:20] validation after step 40: 2.3 s · val 0.500\n',
    '[00:20] warning: rollout-0 died and was restarted\n',
    '[00:20] grpo: 20 s · 40 of 100 · score 0.400 · val 0.500 · 12,345 trained tokens/s · staleness 0.50\n',
  ]);
});

t.test('a terminal gets bars, and they are gone at the end', async (t) => {
  let text = '';
  const output = {
    isTTY: true,
    columns: 120,
    write: (piece: string) => (text += piece),
    cursorTo: () => true,
    clearLine: () => true,
    moveCursor: () => true,
    clearScreenDown: () => true,
    on: () => output,
    removeListener: () => output,
  };
  const display = new Display({ output });
  display.listen({ kind: 'begin', phase: 'warm start', total: 10 });
  display.listen({ kind: 'advance', phase: 'warm start', done: 4, numbers: { loss: 1.25 } });
  display.listen({ kind: 'note', level: 'info', text: 'a line above' });
  display.listen({ kind: 'end', phase: 'warm start', seconds: 1 });
  display.close();
  t.match(text, /warm start/);
  t.match(text, /a line above/);
  t.match(text, /warm start: 1\.0 s · 4 of 10 · loss 1\.250/);
});

t.test('the final table says what was reached, against what, and what to try next', async (t) => {
  const text = finalTable(result);
  for (const part of [
    /400 tasks, temperature 1, seed 1, async/,
    /before GRPO +0\.250 +\[0\.210, 0\.294\]/,
    /after GRPO +0\.810 +\[0\.769, 0\.845\]/,
    /do-nothing +0\.000/,
    /expert +1\.000/,
    /best fixed script \(never-refund\) +0\.280 +on 400 tasks/,
    /150 steps, 38,400 trajectories, 2 min 50 s/,
    /11,765 generated tokens\/s/,
    /actor restarts +1/,
    /run folder +\/.*\/runs\/x/,
    /--resume \/\S*\/runs\/x trainer\.total_training_steps=300/,
    /npx sinkflex evaluate \/\S*\/runs\/x/,
  ]) {
    t.match(text, part);
  }
  t.notMatch(
    finalTable({ ...result, before: null, baselines: [], steps: 0, seconds: { ...result.seconds, grpo: 0 } }),
    /NaN|Infinity|undefined|before GRPO/,
  );
  t.match(JSON.parse(resultLine(result)), { after: { mean: 0.81 }, folder: result.folder });
});

t.test('numbers for people', async (t) => {
  t.same([0.04, 9.96, 59.4, 65, 3600, Number.NaN].map(duration), ['0.0 s', '10.0 s', '59 s', '1 min 05 s', '60 min 00 s', '-']);
  t.equal(
    table(
      [
        ['a', 'n'],
        ['b', '10'],
        ['c', '9'],
      ],
      { header: true },
    ),
    'a  n\n-  --\nb  10\nc   9',
  );
});

t.test('the first Ctrl-C asks, the second ends', { skip: process.platform === 'win32' }, async (t) => {
  const program = `import { stopSignal } from ${JSON.stringify(new URL('../../scripts/stop-signal.js', import.meta.url).href)};
    const stop = stopSignal();
    stop.signal.addEventListener('abort', () => console.log('asked'));
    setInterval(() => {}, 1000);
    console.log('ready');`;
  const start = async () => {
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'ignore'] });
    child.stdout.setEncoding('utf8');
    await once(child.stdout, 'data');
    return child;
  };
  const stubborn = await start();
  const began = performance.now();
  stubborn.kill('SIGINT');
  t.equal((await once(stubborn.stdout, 'data'))[0], 'asked\n');
  t.same(await once(stubborn, 'exit'), [130, null], 'ended although its work did not');
  t.ok(performance.now() - began < 30_000, 'after two seconds, and what a busy machine takes');
  const twice = await start();
  twice.kill('SIGINT');
  await once(twice.stdout, 'data');
  twice.kill('SIGINT');
  t.same(await once(twice, 'exit'), [130, null]);
});
