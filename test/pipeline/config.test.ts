// Settings: composition, aliases, messages for what is wrong, presets, and docs/configuration.md in step with the schema.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { planPlacement } from '../../actors/pipeline/cast.ts';
import {
  ConfigError,
  parseConfig,
  parseOverrides,
  readConfigFile,
  settings,
  settingsSchema,
  type TrainingConfig,
} from '../../actors/pipeline/config.ts';
import { place } from '../../actors/pipeline/placement.ts';
import { configurationMarkdown } from '../../scripts/configuration-page.ts';

const problems = (run: () => unknown): string[] => {
  try {
    run();
  } catch (error) {
    if (error instanceof ConfigError) return error.details?.problems as string[];
    throw error;
  }
  return [];
};
const root = process.cwd();

t.test('later layers win key by key, nested, dotted and in the long form of verl', async (t) => {
  const config = parseConfig([
    { source: 'preset', values: { rollout: { n: 4, temperature: 0.7 }, 'actor.optim.lr': 1e-4 } },
    { source: 'file', values: { 'rollout.temperature': 0.9 } },
    parseOverrides([
      'actor_rollout_ref.actor.optim.lr=1e-5',
      'actor.optim.betas=[0.9, 0.95]',
      'model.path=null',
      'env.options.bikes=3',
      'actor_rollout_ref.rollout.val_kwargs.n=2',
    ]),
  ]);
  t.match(config, {
    rollout: { n: 4, temperature: 0.9 },
    actor: { optim: { lr: 1e-5, betas: [0.9, 0.95] } },
    model: { path: null },
    env: { options: { bikes: 3 } },
    val: { n: 2 },
  });
  t.same(
    parseConfig([{ source: 'saved', values: config as unknown as Record<string, unknown> }]),
    config,
    'a resolved configuration resolves to itself',
  );
});

t.test('all that is wrong is said at once, with the key, the value, its place and what is allowed', async (t) => {
  const found = problems(() =>
    parseConfig([
      { source: 'my.yaml', values: { rollot: { n: 4 }, actor: { optim: 3 } } },
      parseOverrides(['rollout.n=0', 'mode=fast', 'model.head_dims=8', 'temperature=1', 'env.latency=lognormal(mean=200)']),
    ]),
  );
  t.same(found, [
    'rollot.n (my.yaml): unknown setting; did you mean rollout.n?',
    'actor.optim = 3 (my.yaml): is a group of settings, such as actor.optim.lr',
    'model.head_dims (command line): unknown setting; did you mean model.head_dim?',
    'temperature (command line): unknown setting; did you mean rollout.temperature?',
    'mode = "fast" (command line): allowed: sync, async',
    'env.latency = "lognormal(mean=200)" (command line): cannot read the latency "lognormal(mean=200)": write it as lognormal(mean=200ms, sigma=1.0)',
    'rollout.n = 0 (command line): allowed: whole number >= 1',
  ]);
  t.match(
    problems(() =>
      parseConfig([parseOverrides(['model.head_dim=7', 'model.num_key_value_heads=3', 'rollout.n=1', 'actor.ppo_mini_batch_size=5'])]),
    ).join('\n'),
    /num_key_value_heads[\s\S]*head_dim = 7[\s\S]*mini_batch_size[\s\S]*rollout\.n = 1/,
  );
  t.same(
    problems(() =>
      parseConfig([
        parseOverrides([
          'actor.optim.lr=.nan',
          'sft.lr=1e3',
          'actor.optim.betas=[0.9, -.inf]',
          "output=''",
          'env.level=0',
          'env.latency=fixed(-5ms)',
          'rollout.max_num_seqs=70000',
          'model.num_hidden_layers=1e9',
        ]),
      ]),
    ).map((p) => p.replace(' (command line)', '')),
    [
      'output = "": allowed: text (not empty) or null',
      'env.level = 0: allowed: whole number >= 1 and <= 9',
      'env.latency = "fixed(-5ms)": cannot read the latency "fixed(-5ms)": "-5ms" is below 0',
      'model.num_hidden_layers = 1000000000: allowed: whole number >= 1 and <= 1024',
      'rollout.max_num_seqs = 70000: allowed: whole number >= 1 and <= 65536',
      'actor.optim.lr = .nan: allowed: number > 0 and <= 1',
      'actor.optim.betas = [0.9,-.inf]: allowed: [number >= 0 and < 1, number >= 0 and < 1]',
      'sft.lr = 1000: allowed: number > 0 and <= 1',
    ],
  );
  t.match(
    problems(() => parseConfig([parseOverrides(['data.val_size=10', 'data.val_interim_size=11', 'data.train_batch_size=9000'])])),
    [/val_interim_size = 11: at most data\.val_size = 10/, /train_batch_size = 9000 prompts: times rollout\.n = 8 samples at most 65536/],
  );
  t.equal(
    parseConfig([{ source: 'saved', values: { data: { val_size: 400, val_interim_size: 100 } } }, parseOverrides(['data.val_size=10'])])
      .data.val_interim_size,
    10,
    'a smaller val_size alone lowers it',
  );
  t.match(
    problems(() => parseOverrides(['--fast', 'rollout.n'])),
    [/expected key=value/, /expected key=value/],
  );
  t.match(
    problems(() => readConfigFile('/nowhere/x.yaml')),
    [/cannot be read \(ENOENT\)/],
  );
  const folder = t.testdir({ 'list.yaml': '- 1', 'empty.yaml': '' });
  t.match(
    problems(() => readConfigFile(join(folder, 'list.yaml'))),
    [/must be a mapping/],
  );
  t.same(readConfigFile(join(folder, 'empty.yaml')).values, {});
  t.match(new ConfigError(['x']), { code: 'SINKFLEX_SETTINGS', name: 'ConfigError' });
});

t.test('files are YAML or TOML, composed in any order, and what is wrong in them is told with its line', async (t) => {
  const folder = t.testdir({
    'base.yaml': 'rollout:\n  n: 4\n  temperature: 0.5\nalgorithm: { rollout_correction: { rollout_is: null } }\n',
    'over.toml': [
      '# a comment',
      'mode = "sync"',
      '"actor.optim.lr" = 1e-4',
      'actor.optim.betas = [',
      '  0.9,',
      '  0.95,',
      ']',
      '[rollout]',
      'temperature = 0.75',
      '[algorithm.rollout_correction]',
      'rollout_is = "null"',
      '[env.options]',
      'note = """',
      '[rollout]',
      'n = 3"""',
    ].join('\n'),
    'wrong.yaml': '# one\nrollout:\n  n: 0\n  temprature: 1\nactor: { optim: { lr: fast } }\n',
    'wrong.toml': 'seed = 2026-01-01\n[rollout]\ntop_p = [\n [1],\n]\nn.m = 3\n\n[actor.optim]\n"lr" = "fast"\n[[trainer]]\n',
    'bad.yaml': 'rollout:\n  n: 4\n  n: 5\n',
    'bad.toml': 'mode = "sync"\nrollout = { n = 4\n',
  });
  const read = (name: string) => readConfigFile(join(folder, name));
  t.match(parseConfig([read('base.yaml'), read('over.toml'), parseOverrides(['rollout.top_p=0.5'])]), {
    mode: 'sync',
    rollout: { n: 4, temperature: 0.75, top_p: 0.5 },
    actor: { optim: { lr: 1e-4, betas: [0.9, 0.95] } },
    algorithm: { rollout_correction: { rollout_is: null } },
    env: { options: { note: '[rollout]\nn = 3' } },
  });
  t.equal(parseConfig([read('over.toml'), read('base.yaml')]).rollout.temperature, 0.5, 'the later file wins');
  const wrong = (name: string) => problems(() => parseConfig([read(name)])).map((p) => p.replace(`${folder}/`, ''));
  t.same(wrong('wrong.yaml'), [
    'rollout.temprature (wrong.yaml:4): unknown setting; did you mean rollout.temperature?',
    'rollout.n = 0 (wrong.yaml:3): allowed: whole number >= 1',
    'actor.optim.lr = "fast" (wrong.yaml:5): allowed: number > 0 and <= 1',
  ]);
  t.same(wrong('wrong.toml'), [
    'rollout.n.m (wrong.toml:6): unknown setting; did you mean rollout.n?',
    'trainer = [{}] (wrong.toml:10): is a group of settings, such as trainer.total_training_steps',
    'seed = "2026-01-01" (wrong.toml:1): allowed: whole number >= 0 and <= 2147483647',
    'rollout.top_p = [[1]] (wrong.toml:3): allowed: number > 0 and <= 1',
    'actor.optim.lr = "fast" (wrong.toml:9): allowed: number > 0 and <= 1',
  ]);
  t.match(wrong('bad.yaml'), [/^bad\.yaml:3: not YAML \(Map keys must be unique\)$/]);
  t.match(wrong('bad.toml'), [/^bad\.toml:3: not TOML \(.+\)$/]);
});

t.test('colocated actors share the cores, separate ones have their own; on a cluster the hosts take their place', async (t) => {
  const config = (...words: string[]) => parseConfig([parseOverrides(words)]);
  const shape = (c: TrainingConfig, cores: number) => {
    const { rolloutActors, rolloutThreads, trainerThreads } = place(c, cores);
    return [rolloutActors * rolloutThreads, trainerThreads];
  };
  t.same(shape(config(), 4), [4, 4]);
  t.same(shape(config('trainer.placement=colocated'), 4), [4, 4]);
  t.same(shape(config('trainer.placement=separate'), 4), [2, 2]);
  t.same(shape(config('trainer.placement=separate'), 5), [3, 2]);
  t.same(shape(config('trainer.placement=separate'), 1), [1, 1], 'one core has to do');
  t.same(shape(config('trainer.placement=separate', 'actor.threads=3'), 4), [2, 3], 'settings win');
  t.same(shape(config('trainer.placement=separate', 'cluster.address=/head'), 4), [4, 4]);
  const over = { home: 'here', nodes: ['here', 'there'].map((host) => ({ node: `node-${host}`, host })) };
  const nodes = (...words: string[]) =>
    planPlacement(config('rollout.num_actors=2', ...words), over).flatMap(({ name, strategy }) =>
      name.startsWith('rollout-') ? [strategy?.node] : [],
    );
  t.same(nodes('cluster.address=/head'), ['node-there', 'node-there']);
  t.same(nodes('cluster.address=/head', 'trainer.placement=colocated'), ['node-here', 'node-there']);
  const whys = planPlacement(config('trainer.placement=separate')).map(({ why }) => why);
  t.match(whys.at(-1), /cores of its own side/);
});

t.test('every preset is valid, and every setting is described', async (t) => {
  const folder = join(root, 'scripts/presets');
  const presets = readdirSync(folder).filter((name) => name.endsWith('.yaml'));
  t.ok(presets.includes('desk.yaml') && presets.includes('tiny.yaml') && presets.includes('textbook.yaml'));
  for (const name of presets)
    t.same(
      problems(() => parseConfig([readConfigFile(join(folder, name))])),
      [],
      name,
    );
  t.equal(parseConfig([readConfigFile(join(folder, 'textbook.yaml'))]).actor.kl_loss_coef, 0.04);
  const schema = settingsSchema() as { properties: Record<string, { properties: Record<string, unknown> }> };
  t.match(
    schema.properties.rollout!.properties.n,
    { type: 'integer', minimum: 1, default: 8, unit: 'samples' },
    'the JSON schema has it all',
  );
  for (const s of settings()) t.ok(s.description.length > 10 && s.allowed.length > 0, s.key);
  t.equal(
    readFileSync(join(root, 'docs/configuration.md'), 'utf8'),
    configurationMarkdown(),
    'docs/configuration.md is generated: npm run -s build && node dist/scripts/configuration-page.js',
  );
});

t.test('every setting is read by some part of the product', async (t) => {
  const sources = ['actors', 'scripts']
    .flatMap((floor) => readdirSync(join(root, floor), { recursive: true, encoding: 'utf8' }).map((name) => join(root, floor, name)))
    .filter((name) => name.endsWith('.ts') && !/config-(schema|parse|describe)\.ts$/.test(name))
    .map((name) => readFileSync(name, 'utf8'))
    .join('\n');
  const unread = settings()
    .map((s) => s.key)
    .filter((key) => !new RegExp(`\\b${key.split('.').at(-1)}\\b`).test(sources));
  t.same(unread, []);
});

t.test('values of the command line are YAML scalars', async (t) => {
  for (const [word, value] of [
    ['1e-5', 1e-5],
    ['true', true],
    ['null', null],
    ['"7"', '7'],
    ['a b', 'a b'],
    ['[1, 2]', [1, 2]],
    ['lognormal(mean=1s,sigma=1)', 'lognormal(mean=1s,sigma=1)'],
  ] as const) {
    t.same(parseOverrides([`k=${word}`]).values.k, value, word);
    t.same(parse(word), value);
  }
});
