// report.html: what it shows of a run folder, that nothing in a run can break out of its script, and that the script runs.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import t from 'tap';
import { SqliteTrajectoryStore, type Trajectory, toRecord } from '../../actors/index.ts';
import { compareCommand } from '../../scripts/compare.ts';
import { collectReport, histogram, type RunReport } from '../../scripts/run-report/collect.ts';
import { thin } from '../../scripts/run-report/episodes.ts';
import { reportPage } from '../../scripts/run-report/page.ts';

const hostile = '</script><script>broken()</script><!-- <script>';

function episode(task: number, sample: number): Trajectory {
  const n = 6;
  return {
    task,
    sample,
    group: `t${task}`,
    seed: 0,
    ids: Int32Array.from({ length: n }, (_, k) => k + task),
    mask: Uint8Array.from([0, 1, 1, 0, 1, 1]),
    logprobs: Float32Array.from([0, -0.5, -2, 0, -0.25, 0]),
    versions: Int32Array.from([-1, 4, 4, -1, 5, 5]),
    lineage: 0,
    reward: sample,
    rewardParts: { [hostile]: sample },
    stopReason: 'stop',
    turns: 2,
    toolCalls: 1,
    malformed: 0,
    redone: 0,
    // Two seconds, the second half of which the update of the step before is made in.
    seconds: { began: 1000 + 2 * task, total: 2, generate: 1, environment: 1 },
  };
}

async function run(t: { testdir: (o: Record<string, string>) => string }): Promise<string> {
  const folder = t.testdir({ 'config.yaml': 'env:\n  name: desk\nmode: sync\nseed: 7\n' });
  for (const name of ['trajectories', 'checkpoints']) mkdirSync(join(folder, name));
  const metrics = [
    { 'sft/global_step': 1, 'sft/loss': 2 },
    { 'training/global_step': 0, 'val-core/desk/reward/mean@1': 0.25, 'val-core/desk/reward/mean@1/low': 0.2, 'val-core/desk/tasks': 9 },
    ...[1, 2, 3].map((step) => ({
      'training/global_step': step,
      'critic/score/mean': step / 4,
      'training/version': 5 + step,
      'training/score_rolling': 0.5,
      'timing_s/gen': 0.1,
      'timing_s/old_log_prob': 0.2,
      'timing_s/update_actor': 0.5,
      'timing_s/step': 0.7,
      'time/update_began': 1003 + 2 * step,
      'actor/entropy': step === 2 ? null : 1,
    })),
  ];
  writeFileSync(join(folder, 'metrics.jsonl'), metrics.map((m) => `${JSON.stringify(m)}\n`).join(''));
  const store = new SqliteTrajectoryStore(join(folder, 'trajectories', 'trajectories.db'));
  for (const step of [1, 2, 3]) {
    const record = (sample: number) => toRecord(episode(step, sample), { step, phase: 'train', text: hostile, advantage: sample - 0.5 });
    await store.step({ step, lineage: 0, records: [record(0), record(1)], consumed: [] });
  }
  await store.close();
  return folder;
}

t.test('collects what a run recorded', async (t) => {
  const report = await collectReport(await run(t));
  t.equal(report.title, 'desk, seed 7');
  const chart = (title: string) => report.charts.find((c) => c.title === title);
  t.match(chart('Score on held-out tasks'), {
    x: [0, 1, 2, 3],
    series: [{ values: [null, 0.5, 0.5, 0.5] }, { values: [0.25, null, null, null] }],
  });
  t.strictSame(chart('Entropy of the policy')?.series[0]?.values, [1, null, 1], 'what was not a number is a gap');
  t.equal(chart('Gradient norm'), undefined, 'nothing is drawn of what was not recorded');
  t.equal(chart('Warm start')?.x.length, 1);
  t.strictSame(
    report.time[0]?.map((v) => Number(v.toFixed(9))),
    [1, 0.1, 0.2, 0.3, 0.1],
  );
  const [episodes, trainer] = chart('Rollout and training over time')!.series.map(({ values }) => values as number[]);
  const width = chart('Rollout and training over time')!.x[1]!;
  t.ok(Math.abs(episodes!.reduce((a, b) => a + b, 0) * width - 6) < 0.05, 'episodes are under way for six seconds');
  t.ok(Math.abs(trainer!.reduce((a, b) => a + b, 0) * width - 1.8) < 0.05, 'and the trainer works for three times 0.6');
  t.ok(
    trainer!.some((v, i) => v === 1 && episodes![i] === 1),
    'at the same time',
  );
  const stale = report.histograms.find((h) => h.title.startsWith('Staleness'));
  t.match(stale, { edges: [2, 3], counts: [2, 2] }, 'version 4 at steps 2 and 3, when the trainer held 6 and 7');
  t.equal(report.episodes.length, 6);
  t.match(report.episodes[1], {
    step: 1,
    reward: 1,
    advantage: 0.5,
    staleness: null,
    spans: [
      { policy: false, text: ' 1' },
      {
        policy: true,
        pieces: [
          [' 2', -0.5],
          [' 3', -2],
        ],
      },
      { policy: false, text: ' 4' },
      {
        policy: true,
        pieces: [
          [' 5', -0.25],
          [' 6', 0],
        ],
      },
    ],
  });
});

t.test('thins and counts', async (t) => {
  t.strictSame(thin([1, 2, 3], 3), [1, 2, 3]);
  t.strictSame(
    thin(
      Array.from({ length: 100 }, (_, i) => i),
      4,
    ),
    [0, 33, 66, 99],
  );
  t.match(histogram('', '', [3, 3, 5]), { edges: [3, 4, 5], counts: [2, 0, 1] });
  t.match(histogram('', '', [0.5]), { counts: { length: 24 } });
  t.strictSame(histogram('', '', []), { title: '', unit: '', edges: [], counts: [] });
  const wide = histogram(
    '',
    '',
    Array.from({ length: 1000 }, (_, i) => i),
  );
  t.equal(
    wide.counts.reduce((a, b) => a + b, 0),
    1000,
  );
  t.ok(wide.counts.length <= 25);
});

t.test('the page: nothing breaks out of a script, nothing is loaded, and its script draws everything', async (t) => {
  const report = await collectReport(await run(t));
  const page = reportPage({ ...report, title: hostile });
  t.equal(page.match(/<script/g)?.length, 2);
  t.equal(page.match(/<\/script>/g)?.length, 2);
  t.notMatch(page, /\ssrc=|\shref=|@import|<!-- <script/);
  // The page's own script with a stand-in for the browser: text arrives as text, and every chart is drawn with data that fit its series.
  const script = /<script>(const report = [\s\S]*)<\/script>/.exec(page)![1]!;
  const made: FakeElement[] = [];
  class FakeElement {
    children: (FakeElement | string)[] = [];
    textContent = '';
    className = '';
    title = '';
    value = '0';
    clientWidth = 600;
    style = { background: '' };
    append(...nodes: (FakeElement | string)[]) {
      this.children.push(...nodes);
    }
    replaceChildren(...nodes: (FakeElement | string)[]) {
      this.children = nodes;
    }
    addEventListener(_: string, listener: () => void) {
      this.changed = listener;
    }
    changed = () => {};
  }
  const byId = new Map<string, FakeElement>();
  const document = {
    getElementById: (id: string) => byId.get(id) ?? byId.set(id, new FakeElement()).get(id)!,
    createElement: () => made[made.push(new FakeElement()) - 1]!,
  };
  const plots: { series: unknown[]; data: unknown[][] }[] = [];
  class uPlot {
    static paths = { bars: () => () => null };
    constructor(options: { series: unknown[] }, data: unknown[][]) {
      plots.push({ series: options.series, data });
    }
  }
  const context = createContext({ document, uPlot });
  runInContext(script, context);
  t.equal(plots.length, report.charts.length + report.histograms.length + 1);
  for (const { series, data } of plots) {
    t.equal(series.length, data.length);
    t.ok(data.every((values) => values.length === data[0]!.length));
  }
  const options = byId.get('episodes')!.children;
  t.equal(options.length, report.episodes.length);
  byId.get('episodes')!.value = '1';
  byId.get('episodes')!.changed();
  const [about, ...turns] = byId.get('episode')!.children as FakeElement[];
  t.match(about!.textContent, /step 1, task 1, sample 1: reward 1 \(<\/script>.*advantage 0\.5/);
  t.equal(turns.length, 4);
  t.match((turns[1]!.children[1] as FakeElement).title, /log-probability -2, probability 0\.135/);
  const parsed = runInContext('report', context) as RunReport;
  t.strictSame(JSON.parse(JSON.stringify(parsed.episodes)), JSON.parse(JSON.stringify(report.episodes)));
});

const chromium = ['chromium', 'chromium-browser', 'google-chrome'].find((name) => spawnSync(name, ['--version']).status === 0);

t.test('a browser opens it from disk and draws everything', { skip: chromium ? false : 'no chromium on this machine' }, async (t) => {
  const report = await collectReport(await run(t));
  const path = join(t.testdirName, 'report.html');
  writeFileSync(path, reportPage(report));
  // The sandbox of the browser needs what containers and root do not give; the page is our own.
  const words = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    `--user-data-dir=${join(t.testdirName, 'profile')}`,
  ];
  const child = spawn(chromium!, [...words, '--dump-dom', pathToFileURL(path).href], {
    stdio: ['ignore', 'pipe', 'ignore'],
    timeout: 120_000,
  });
  let dom = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    dom += text;
  });
  const [code] = await once(child, 'close');
  t.equal(code, 0);
  t.equal(dom.match(/<canvas/g)?.length, report.charts.length + report.histograms.length + 1, 'every chart');
  t.equal(dom.match(/<option/g)?.length, 6, 'every episode');
  t.equal(dom.match(/title="log-probability/g)?.length, 4, 'tokens of the first');
});

t.test('compare: two validations of the same tasks, paired', async (t) => {
  const scored = (name: string, options: object, rewards: number[][]) => {
    const folder = join(t.testdirName, name);
    mkdirSync(join(folder, 'trajectories'), { recursive: true });
    writeFileSync(join(folder, 'config.yaml'), 'env:\n  name: desk\n');
    const scores = { environment: 'desk', options, temperature: 1, tasks: rewards.map((r, i) => ({ seed: i, rewards: r })) };
    writeFileSync(join(folder, 'trajectories', 'validation-0000000004.scores.json'), JSON.stringify(scores));
    return folder;
  };
  t.testdir({});
  const a = scored('a', { level: 1 }, [[0, 1], [0], [1]]);
  const b = scored('b', { level: 1 }, [[1, 1], [1], [1], [0]]);
  const other = scored('c', { level: 2 }, [[1]]);
  const out: string[] = [];
  const write = process.stdout.write;
  process.stdout.write = ((text: string) => out.push(text) > 0) as typeof write;
  try {
    await compareCommand().parseAsync([a, b, '--json'], { from: 'user' });
    await compareCommand().parseAsync([`${a}@4`, b], { from: 'user' });
  } finally {
    process.stdout.write = write;
  }
  t.match(JSON.parse(out[0]!), { tasks: 3, better: 2, worse: 0, equal: 1, p: 0.5, difference: { mean: 0.5 } });
  t.match(out[1], /3 in common: b better on 2/);
  await t.rejects(compareCommand().parseAsync([a, other], { from: 'user' }), { message: /different tasks: options/ });
  await t.rejects(compareCommand().parseAsync([`${a}@3`, b], { from: 'user' }), { message: /has them after steps 4/ });
});
