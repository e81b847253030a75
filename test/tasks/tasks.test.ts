// Tasks: files with the place of every fault, samplers that a seed and a state fix, group sizes by pass rate, the dataset environment.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t from 'tap';
import { checkEnvironment, entry, make } from '../../actors/environment/index.ts';
import { parseConfig } from '../../actors/pipeline/config.ts';
import {
  adaptiveGroupSize,
  makeSampler,
  readPlainRow,
  readTaskFiles,
  type SamplerContext,
  samplerNames,
  TaskSource,
  type TaskSourceOptions,
} from '../../actors/tasks/index.ts';

const dataset = entry('dataset');
const question = (content: string, answers: string[], dataSource = 'dataset') => ({
  messages: [{ role: 'user', content }],
  answers,
  dataSource,
});

t.test('JSON lines, Parquet and modules are read in the order of files and rows', async (t) => {
  const folder = t.testdir({
    'a.jsonl': '{"question":"1 + 1?","answer":2}\n\n{"prompt":"capital of France?","answer":["Paris","paris, France"],"level":3}\n',
    'rows.mjs': 'export default [{ question: "one", answer: "1" }];',
    'maker.mjs': 'export default async () => new Set([{ seed: 7 }, { options: { level: 2 }, level: 2 }]);',
  });
  const file = (name: string) => join(folder, name);
  const child = fork(fileURLToPath(new URL('./fixtures/write-parquet.js', import.meta.url)), [file('verl.parquet')], { execArgv: [] });
  await once(child, 'message');
  t.strictSame(await readTaskFiles(['a.jsonl', 'verl.parquet', 'rows.mjs'].map(file), dataset.readTask!), [
    { options: question('1 + 1?', ['2']) },
    { options: question('capital of France?', ['Paris', 'paris, France']), level: 3 },
    { options: question('2 + 3?', ['5'], 'gsm'), level: 1 },
    { options: question('7 - 1?', ['6'], 'gsm'), level: 2 },
    { options: question('one', ['1']) },
  ]);
  t.strictSame(await readTaskFiles([file('maker.mjs')], readPlainRow), [{ seed: 7 }, { options: { level: 2 }, level: 2 }]);
});

t.test('what cannot be used is refused with file and line', async (t) => {
  const folder = t.testdir({
    'json.jsonl': '{"question":"a","answer":"b"}\n{"question"\n',
    'column.jsonl': '\n{"question":"a","anwser":"b"}\n',
    'answer.jsonl': '{"question":"a"}\n',
    'list.jsonl': '[1]\n',
    'empty.jsonl': '\n',
    'data.parquet': 'PAR1 no PAR1',
    'number.mjs': 'export default 3;',
    'throws.mjs': 'export default () => { throw new Error("no rows today"); };',
    'rows.csv': 'a,b',
    'deep.jsonl': '{"question":"a","answer":"b","prompt":[{"role":"robot","content":"x"}]}\n',
  });
  const cases: [string, RegExp][] = [
    ['json.jsonl', /json\.jsonl:2: no JSON/],
    ['column.jsonl', /column\.jsonl:2: there is no column anwser: did you mean answer\?/],
    ['answer.jsonl', /answer\.jsonl:1: it needs an answer/],
    ['list.jsonl', /list\.jsonl:1: a row is an object/],
    ['empty.jsonl', /empty\.jsonl: it holds no row/],
    ['data.parquet', /data\.parquet: it cannot be read as Parquet/],
    ['number.mjs', /default export must be an array/],
    ['throws.mjs', /throws\.mjs: the module failed: no rows today/],
    ['rows.csv', /must end in \.jsonl/],
    ['absent.jsonl', /there is no such file/],
    ['deep.jsonl', /deep\.jsonl:1: prompt/],
  ];
  for (const [name, message] of cases)
    await t.rejects(readTaskFiles([join(folder, name)], dataset.readTask!), { code: 'SINKFLEX_TASK_FILE', message }, name);
  await t.rejects(readTaskFiles([join(folder, 'column.jsonl')], readPlainRow), { message: /column\.jsonl:2: there is no column question/ });
});

const context: SamplerContext = {
  arms: 6,
  levelOf: (arm) => Math.floor(arm / 2) + 1,
  seed: 11,
  shuffle: true,
  promoteAt: 0.75,
  minGroups: 3,
  review: 0.25,
  band: [0.1, 0.9],
  explore: 0,
  decay: 0.9,
};
const draw = (s: { draw: (i: number) => number }, n: number, from = 0) => Array.from({ length: n }, (_, i) => s.draw(from + i));

t.test('every sampler: a seed and a state fix the draws, and a state that was saved goes on as if nothing had been', async (t) => {
  for (const name of samplerNames) {
    fc.assert(
      fc.property(fc.array(fc.array(fc.constantFrom(0, 0.5, 1), { maxLength: 3 }), { maxLength: 40 }), fc.nat(39), (results, cut) => {
        const one = makeSampler(name, context);
        let two = makeSampler(name, context);
        for (const [i, rewards] of results.entries()) {
          const arm = one.draw(i);
          if (two.draw(i) !== arm) return false;
          one.learn(arm, rewards);
          two.learn(arm, rewards);
          if (i !== cut) continue;
          const saved = JSON.parse(JSON.stringify(two.state()));
          two = makeSampler(name, context);
          two.restore(saved);
        }
        return JSON.stringify(one.state()) === JSON.stringify(two.state());
      }),
      { seed: 3, numRuns: 60 },
    );
    const other = makeSampler(name, { ...context, seed: 12 });
    t.notSame(draw(other, 40), draw(makeSampler(name, context), 40), `${name}: another seed draws otherwise`);
  }
  t.throws(() => makeSampler('unifrom', context), { code: 'SINKFLEX_SAMPLER', message: /did you mean uniform\?/ });
});

t.test('uniform: every row once an epoch, in a new order each time', async (t) => {
  const s = makeSampler('uniform', context);
  const epochs = [0, 1, 2].map((e) => draw(s, 6, 6 * e));
  for (const e of epochs) t.strictSame([...e].sort(), [0, 1, 2, 3, 4, 5]);
  t.notSame(epochs[0], epochs[1]);
  t.strictSame(draw(makeSampler('uniform', context), 6, 6), epochs[1], 'an epoch does not depend on those before');
  t.strictSame(draw(makeSampler('uniform', { ...context, shuffle: false }), 8), [0, 1, 2, 3, 4, 5, 0, 1]);
});

t.test('curriculum: a level opens when the one before it is mastered, not earlier', async (t) => {
  const s = makeSampler('curriculum', context);
  const levels = () => new Set(draw(s, 200).map((arm) => context.levelOf(arm)));
  t.strictSame([...levels()], [1]);
  for (let i = 0; i < 9; i++) s.learn(0, [0, 1]);
  t.strictSame([...levels()], [1], 'half is not enough');
  for (let i = 0; i < 9; i++) s.learn(1, [1, 1]);
  t.strictSame([...levels()].sort(), [1, 2]);
  t.match(s.metrics(), { 'data/curriculum/opened': 2, 'data/curriculum/level': 2 });
  const drawn = draw(s, 2000).map((arm) => context.levelOf(arm));
  t.ok(Math.abs(drawn.filter((l) => l === 1).length / 2000 - 0.25) < 0.04, 'the share of review');
  for (let i = 0; i < 30; i++) s.learn(0, [1]);
  t.notOk(levels().has(3), 'an old level opens nothing');
  t.throws(() => makeSampler('curriculum', { ...context, levelOf: () => undefined }), { code: 'SINKFLEX_SAMPLER' });
});

t.test('pass_rate: what is always or never solved is passed over, what is unknown is tried', async (t) => {
  const s = makeSampler('pass_rate', context);
  t.equal(new Set(draw(s, 100)).size, 6);
  for (let i = 0; i < 5; i++)
    for (const [arm, r] of [
      [0, 0],
      [1, 1],
      [2, 0.5],
      [3, 1],
      [4, 0],
    ] as const)
      s.learn(arm, [r]);
  t.strictSame([...new Set(draw(s, 100))].sort(), [2, 5]);
  t.ok(s.metrics()['data/pass_rate/passed_over']! > 0);
  s.learn(2, [1]);
  for (let i = 0; i < 60; i++) for (const arm of [2, 5]) s.learn(arm, [1]);
  t.ok(draw(s, 20).length === 20, 'where nothing is in the band, the nearest is taken');
  t.equal(new Set(draw(makeSampler('pass_rate', { ...context, explore: 1 }), 100)).size, 6);
});

t.test('group sizes: the fewest samples that show two outcomes often enough', async (t) => {
  const o = { least: 2, most: 16, target: 0.9 };
  t.equal(adaptiveGroupSize(undefined, o), 16);
  t.equal(adaptiveGroupSize(0.5, o), 5);
  t.equal(adaptiveGroupSize(0, o), 16);
  t.equal(adaptiveGroupSize(1, o), 16);
  for (const p of [0.2, 0.35, 0.5, 0.7]) {
    const n = adaptiveGroupSize(p, o);
    const shows = (k: number) => 1 - p ** k - (1 - p) ** k;
    t.ok(shows(n) >= 0.9 && shows(n - 1) < 0.9, `p = ${p}: ${n}`);
  }
});

t.test('the source: a row is fixed by the index of its draw; draws after a checkpoint are drawn again', async (t) => {
  const o: TaskSourceOptions = {
    ...context,
    sampler: 'uniform',
    train: [{ seed: 5 }, { options: { level: 2 } }, {}],
    heldOut: [{ seed: 9 }, {}],
    heldOutSeeds: undefined,
    levels: [],
    samples: 8,
    adaptive: { least: 2, target: 0.9 },
  };
  const source = new TaskSource(o);
  const first = [0, 1, 2].map((i) => source.draw(i));
  t.strictSame(
    first.map((d) => d.samples),
    [8, 8, 8],
  );
  t.ok(first.some((d) => d.seed === 5) && first.some((d) => d.options?.level === 2));
  const saved = JSON.parse(JSON.stringify(source.state()));
  source.learn(first.map((_, task) => ({ task, rewards: [0, 1] })));
  t.equal(source.draw(3).samples, 5);
  t.strictSame(source.draw(3), source.draw(3));
  source.restore(saved);
  t.strictSame(
    [0, 1, 2].map((i) => source.draw(i)),
    first,
  );
  t.equal(source.heldOutCount, 2);
  t.equal(source.heldOut(0).seed, 9);
  t.ok(source.heldOut(1).seed >= 2 ** 31);
  const generated = new TaskSource({ ...o, train: undefined, heldOut: undefined, levels: [1, 3], adaptive: undefined });
  const some = Array.from({ length: 20 }, (_, i) => generated.draw(i));
  t.strictSame(new Set(some.map((d) => d.options!.level)), new Set([1, 3]));
  t.equal(new Set(some.map((d) => d.seed)).size, 20);
  t.equal(generated.heldOutCount, Number.POSITIVE_INFINITY);
});

t.test('dataset: asks the row, scores the reply', async (t) => {
  const play = async (options: Record<string, unknown>, row: Record<string, unknown>, text: string) => {
    const environment = make('dataset', options);
    const opening = await environment.reset({ seed: 0, options: dataset.readTask!(row).options! });
    const step = await environment.step({ text, toolCalls: [], finish: false });
    await environment.close();
    return { said: opening.observation.map((m) => m.content), reward: step.reward, over: step.terminated };
  };
  const row = { question: 'how many?', answer: '1,234' };
  t.strictSame(await play({}, row, 'so it is 1234.'), { said: ['how many?'], reward: 1, over: true });
  t.equal((await play({}, row, '1234 or 5')).reward, 0);
  t.equal((await play({}, row, 'many')).reward, 0);
  t.strictSame(await play({ score: 'exact', system: 'be brief' }, { question: 'who?', answer: ['A  b', 'c'] }, ' a B\n'), {
    said: ['be brief', 'who?'],
    reward: 1,
    over: true,
  });
  t.equal((await play({ score: 'contains' }, { question: 'who?', answer: 'ann' }, 'it is Ann')).reward, 1);
  const options = dataset.readTask!(row).options!;
  const asked: typeof dataset = {
    ...dataset,
    create(o) {
      const one = dataset.create(o);
      return { reset: ({ seed }) => one.reset({ seed, options }), step: (action) => one.step(action), close: () => one.close() };
    },
  };
  t.strictSame(await checkEnvironment(asked, { seeds: [0, 1] }), [], 'it conforms');
  t.throws(() => make('dataset', { scor: 'exact' }), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /did you mean score\?/ });
  await t.rejects(async () => make('dataset').reset({ seed: 1 }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
});

t.test('settings: one file or several; what contradicts is said', async (t) => {
  const parse = (values: Record<string, unknown>) => parseConfig([{ source: 'test', values }]);
  t.match(parse({ 'data.train_files': '/a.jsonl' }).data.train_files, ['/a.jsonl']);
  t.match(parse({ 'data.val_files': ['/a.jsonl', '/b.parquet'] }).data.val_files, ['/a.jsonl', '/b.parquet']);
  t.throws(() => parse({ 'data.sampler.class_name': 'curriculum' }), /needs data\.sampler\.levels/);
  t.throws(() => parse({ 'data.train_files': 'a.jsonl', 'data.sampler.levels': [1, 2] }), /is for generated tasks/);
  t.throws(() => parse({ 'data.sampler.band': [0.9, 0.1] }), /first must be below/);
  t.throws(() => parse({ 'rollout.adaptive_n.enable': true, 'rollout.n': 3 }), /at most rollout\.n = 3/);
});
