// The run folder: creation and its refusals, checkpoints, actors.json, the curve and the transcripts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parseConfig, parseOverrides } from '../../actors/pipeline/config.ts';
import { drawCurve, PALETTE } from '../../actors/pipeline/curve.ts';
import { checkReference } from '../../actors/pipeline/preflight.ts';
import { RunFolder } from '../../actors/pipeline/run-folder.ts';
import { atomicWrite, ioError } from '../../actors/pipeline/run-folder-io.ts';
import { wilson } from '../../actors/pipeline/statistics.ts';
import { pickEpisodes, transcript } from '../../actors/pipeline/transcripts.ts';
import type { Trajectory } from '../../actors/trajectory/index.ts';

const configFor = (output: string | null, ...words: string[]) => parseConfig([parseOverrides([`output=${output}`, ...words])]);

t.test('a new run has its own folder and saves its settings', async (t) => {
  const root = t.testdir();
  const now = new Date('2026-01-31T09:05:03Z');
  const config = configFor(null, 'rollout.n=4');
  const folder = RunFolder.create({ config, preset: 'desk', root, now });
  t.equal(folder.path, join(root, '20260131T090503Z-desk'));
  t.equal(RunFolder.create({ config, preset: 'desk', root, now }).path, `${folder.path}-2`);
  t.match(readFileSync(folder.file('config.yaml'), 'utf8'), /preset desk[\s\S]*not the default: rollout\.n\n[\s\S]*rollout:\n {2}n: 4/);
  t.same(parseConfig([RunFolder.open(folder.path).savedConfig()]), config);
  const damaged: [string, RegExp][] = [
    ['', /config\.yaml is damaged: it holds no settings/],
    ['seed: 1\nactor:\n', /its section actor has no settings/],
    ['actor:\n  optim:\n', /its section actor\.optim has no settings/],
    ['actor: [', /cannot be read as YAML/],
  ];
  const whole = readFileSync(folder.file('config.yaml'));
  for (const [content, message] of damaged) {
    writeFileSync(folder.file('config.yaml'), content);
    t.throws(() => folder.savedConfig(), { code: 'SINKFLEX_RESUME', message });
  }
  writeFileSync(folder.file('config.yaml'), whole);
  t.doesNotThrow(() => checkReference(configFor(null, 'actor.use_kl_loss=false'), folder));
  t.throws(() => checkReference(configFor(null, 'actor.use_kl_loss=true'), folder), {
    code: 'SINKFLEX_CHECKPOINT_INVALID',
    message: /reference/,
  });
  t.same(readdirSync(folder.path).sort(), ['checkpoints', 'config.yaml', 'trajectories', 'transcripts']);
});

t.test('folders that cannot be used are refused, and nothing is left behind', async (t) => {
  const root = t.testdir({ used: { 'notes.txt': 'mine' }, empty: {}, file: '' });
  t.throws(() => RunFolder.create({ config: configFor(join(root, 'used')), preset: 'desk' }), {
    code: 'SINKFLEX_OUTPUT_EXISTS',
    message: /--resume/,
  });
  t.same(readdirSync(join(root, 'used')), ['notes.txt']);
  t.throws(() => RunFolder.create({ config: configFor(join(root, 'file', 'run')), preset: 'desk' }), {
    code: 'SINKFLEX_OUTPUT_UNWRITABLE',
    message: /ENOTDIR/,
  });
  t.doesNotThrow(() => RunFolder.create({ config: configFor(join(root, 'empty')), preset: 'desk' }));
  if (process.platform === 'linux') {
    t.throws(() => RunFolder.create({ config: configFor('/proc/nowhere/run'), preset: 'desk' }), {
      code: /SINKFLEX_(OUTPUT_UNWRITABLE|DISK_FULL)/,
    });
  }
  t.throws(() => RunFolder.open(join(root, 'empty', 'missing')), { code: 'SINKFLEX_RESUME' });
  t.match(ioError(Object.assign(new Error('full'), { code: 'ENOSPC' }), '/x'), { code: 'SINKFLEX_DISK_FULL', message: /\/x/ });
  t.throws(() => atomicWrite(join(root, 'used'), 'a file where a folder is'), { code: 'SINKFLEX_OUTPUT_UNWRITABLE' });
  t.same(readdirSync(root).sort(), ['empty', 'file', 'used'], 'no temporary file');
});

t.test('checkpoints are listed when whole, and only the newest are kept', async (t) => {
  const folder = RunFolder.create({ config: configFor(join(t.testdir(), 'run')), preset: 'tiny' });
  for (const step of [0, 25, 50, 100]) mkdirSync(folder.checkpoint(step));
  mkdirSync(`${folder.checkpoint(125)}.tmp-1`);
  const { pid: dead } = spawnSync(process.execPath, ['--version']);
  const left = (step: string, pid: number) => folder.file('checkpoints', `.step-${step}.tmp-${pid}`);
  for (const path of [left('0000000125', dead), `${left('0000000100', dead)}.old`, `${left('0000000075', dead)}.old`]) mkdirSync(path);
  mkdirSync(left('0000000150', process.pid));
  RunFolder.open(folder.path);
  t.same(
    readdirSync(folder.file('checkpoints')).filter((name) => name.startsWith('.')),
    [`.step-0000000150.tmp-${process.pid}`],
    'of a dead process nothing is left but the checkpoint that it was replacing',
  );
  t.ok(existsSync(folder.checkpoint(75)));
  rmdirSync(folder.checkpoint(75));
  rmdirSync(left('0000000150', process.pid));
  t.same(folder.checkpoints(), [0, 25, 50, 100]);
  folder.pruneCheckpoints(2);
  t.same(readdirSync(folder.file('checkpoints')), ['step-0000000050', 'step-0000000100']);
  t.equal(RunFolder.open(folder.checkpoint(50)).path, folder.path);
});

t.test('actors.json follows restarts at once and versions at leisure', async (t) => {
  const folder = RunFolder.create({ config: configFor(join(t.testdir(), 'run')), preset: 'tiny' });
  const actor = { name: 'rollout-0', kind: 'RolloutActor', pid: 10, incarnation: 0, state: 'alive', restarts: 0, version: 1 };
  const read = () => (JSON.parse(readFileSync(folder.file('actors.json'), 'utf8')) as (typeof actor)[])[0]!;
  folder.writeActors([actor]);
  t.same(read(), actor);
  folder.writeActors([{ ...actor, version: 2 }]);
  t.equal(read().version, 1);
  folder.writeActors([{ ...actor, pid: 11, incarnation: 1, version: 3 }]);
  t.match(read(), { pid: 11, version: 3 });
  folder.writeActors([{ ...actor, pid: 11, incarnation: 1, version: 4 }]);
  folder.flushActors();
  t.equal(read().version, 4);
  folder.writeJson('ledger.json', { sampled: 1 });
  folder.writeCurve('<svg/>');
  folder.writeTranscript('solved', 'text\n');
  t.ok(existsSync(folder.file('transcripts', 'solved.txt')));
  writeFileSync(folder.file('ledger.json'), '');
});

t.test('the curve is well-formed and shows what it was given', async (t) => {
  const svg = drawCurve({
    title: 'a < b & c',
    xLabel: 'GRPO step',
    yLabel: 'score (share of tasks)',
    references: [{ label: 'expert', y: 1 }],
    series: [
      {
        label: 'training, rolling',
        color: PALETTE[1],
        faint: true,
        line: [
          { x: 1, y: 0.2 },
          { x: 2, y: Number.NaN },
          { x: 120, y: 0.8 },
        ],
      },
      {
        label: 'validation',
        color: PALETTE[0],
        points: [
          { x: 0, score: wilson(100, 400) },
          { x: 120, score: wilson(320, 400) },
        ],
      },
    ],
  });
  t.match(svg, /a &lt; b &amp; c/);
  t.notMatch(svg, /NaN|undefined|Infinity/);
  t.equal((svg.match(/<circle [^>]*r="4"[^>]*><title>/g) ?? []).length, 2);
  for (const label of ['GRPO step', 'score (share of tasks)', 'expert', 'validation', '>0.80<', '>120<']) t.ok(svg.includes(label), label);
  const low = drawCurve({
    title: '',
    xLabel: '',
    yLabel: '',
    series: [{ label: 'v', color: '#000', points: [0, 9].map((x) => ({ x, score: wilson(x === 0 ? 0 : 12, 400) })) }],
  });
  const bottom = Number(/<path d="M68 64V(\d+)H/.exec(low)![1]);
  const values = [...low.matchAll(/<text x="[\d.]+" y="([\d.]+)"[^>]*font-weight="600" paint[^>]*>0\.0/g)].map((m) => Number(m[1]));
  t.ok(values.length === 2 && values.every((y) => y < bottom - 3), `values at ${values}, the axis at ${bottom}`);
  const open = [...svg.matchAll(/<(\w+)(?: [^>]*[^/>])?>/g)].map((m) => m[1]);
  const closed = [...svg.matchAll(/<\/(\w+)>/g)].map((m) => m[1]);
  t.same(open.sort(), closed.sort(), 'every element that opens closes');
});

t.test('transcripts read as text', async (t) => {
  const words = ['<s>', 'where', 'is', 'my', 'bike', '?', 'FIND', '21'];
  const episode = (task: number, reward: number): Trajectory => ({
    task,
    sample: 0,
    group: `g${task}`,
    seed: 7,
    ids: Int32Array.of(1, 2, 3, 4, 5, 6, 7, 1),
    mask: Uint8Array.of(0, 0, 0, 0, 0, 1, 1, 0),
    logprobs: new Float32Array(8),
    versions: new Int32Array(8),
    lineage: 0,
    reward,
    rewardParts: { state: reward, told: 1 },
    stopReason: 'stop',
    turns: 1,
    toolCalls: 1,
    malformed: 0,
    redone: 0,
    seconds: { total: 0, generate: 0, environment: 0 },
  });
  const decode = (ids: Int32Array) => [...ids].map((id) => words[id]).join(' ');
  t.equal(
    transcript(episode(3, 1), { decode, origin: 'validation after step 4' }),
    [
      'Solved episode: validation after step 4',
      'task 3, sample 0, seed 7; ended by stop after 1 turns, 1 tool calls, 0 malformed',
      'reward 1 (state 1, told 1)',
      '> is the policy, | is the prompt, the tools and the user',
      '',
      '| where is my bike ?',
      '> FIND 21',
      '| where',
      '',
    ].join('\n'),
  );
  t.match(pickEpisodes([episode(9, 0), episode(4, 1), episode(2, 0)]), { failed: { task: 2 }, solved: { task: 4 } });
});
