// The command as a user meets it, in a process of its own: help, dry runs, and what it says when something is wrong.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { SinkflexError } from '../../kernels/index.ts';
import { explain } from '../../scripts/errors.ts';
import { main } from '../../scripts/main.ts';
import { compose, listPresets } from '../../scripts/presets.ts';

// The test runner's hooks would triple the start of every command.
delete process.env.NODE_OPTIONS;

const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));

/** In this process: as fast as a function call. */
async function sinkflex(t: Test, words: string[], o: { cwd?: string } = {}) {
  const here = process.cwd();
  const [out, errors] = [t.capture(process.stdout, 'write'), t.capture(process.stderr, 'write')];
  try {
    if (o.cwd) process.chdir(o.cwd);
    const code = await main(words);
    return { code, out: text(out()), errors: text(errors()) };
  } finally {
    process.chdir(here);
    out.restore();
    errors.restore();
  }
}
const text = (calls: readonly { args: readonly unknown[] }[]): string => calls.map((c) => String(c.args[0])).join('');

/** In a process of its own. */
function child(words: string[], cwd: string) {
  const r = spawnSync(process.execPath, [entry, ...words], { encoding: 'utf8', timeout: 30_000, cwd });
  return { code: r.status, out: r.stdout, errors: r.stderr };
}

t.test('help shows the commands, and launch its presets and examples', async (t) => {
  const all = await sinkflex(t, ['--help']);
  t.equal(all.code, 0);
  for (const command of ['launch', 'evaluate', 'study', 'bench', 'doctor']) t.match(all.out, new RegExp(`^ {2}${command} `, 'm'));
  const launch = await sinkflex(t, ['launch', '--help']);
  t.equal(launch.code, 0);
  for (const { name } of listPresets()) t.match(launch.out, new RegExp(`^ {2}${name} +\\S`, 'm'));
  t.match(launch.out, /Examples[\s\S]*--dry-run[\s\S]*Exit codes/);
});

t.test('a dry run shows settings and placement, and leaves no trace', async (t) => {
  const cwd = t.testdir({ 'mine.yaml': 'rollout: { n: 4 }\nactor.optim.lr: 1e-5\n' });
  const r = await sinkflex(t, ['launch', 'tiny', '--config', 'mine.yaml', 'rollout.n=6', '--seed', '9', '--mode', 'sync', '--dry-run'], {
    cwd,
  });
  t.equal(r.code, 0, r.errors);
  t.match(parse(r.out), { mode: 'sync', seed: 9, rollout: { n: 6 }, actor: { optim: { lr: 1e-5 } }, sft: { total_steps: 20 } });
  t.match(r.out, /# Placement[\s\S]*environment-0[\s\S]*rollout-0[\s\S]*trainer/);
  t.same(readdirSync(cwd), ['mine.yaml']);
});

t.test('what the user can put right: one message with the fix, exit code 2, no stack', async (t) => {
  const cwd = t.testdir({
    full: { 'notes.txt': '' },
    file: '',
    'bad.yaml': 'a: [',
    run: { 'config.yaml': 'actor:\n', checkpoints: { 'step-0000000000': {} } },
  });
  const cases: [string[], RegExp][] = [
    [['launch', 'dsk'], /SINKFLEX_PRESET_UNKNOWN.*did you mean desk\?/],
    [
      ['launch', 'rollot.n=4', 'mode=fast', 'env.name=dsk'],
      /SINKFLEX_SETTINGS: 2 settings[\s\S]*did you mean rollout\.n\?[\s\S]*allowed: sync, async/,
    ],
    [['launch', 'env.name=dsk'], /did you mean desk\?/],
    [['launch', '--config', 'none.yaml'], /none\.yaml: cannot be read \(ENOENT\)/],
    [['launch', '--config', 'bad.yaml'], /bad\.yaml:1: not YAML/],
    [['launch', '--seed', 'x'], /seed = "x".*whole number/],
    [['launch', '--output', 'full', '--dry-run'], /SINKFLEX_OUTPUT_EXISTS.*--resume full/],
    [['launch', '--output', 'file/run', '--dry-run'], /SINKFLEX_OUTPUT_UNWRITABLE.*ENOTDIR/],
    [['launch', '--resume', 'full'], /SINKFLEX_RESUME.*not a run folder/],
    [['launch', '--resume', 'run', '-o', 'other'], /SINKFLEX_USAGE.*own folder.*leave --output other out/],
    [['launch', '--resume', 'run'], /SINKFLEX_RESUME: .*config\.yaml is damaged: its section actor/],
    [['evaluate', 'run'], /SINKFLEX_RESUME: .*config\.yaml is damaged/],
    [['launch', 'tiny', 'env.level=9'], /SINKFLEX_ENVIRONMENT_OPTION: .*level/],
    [['launch', 'tiny', 'env.options={foo: 1}'], /SINKFLEX_ENVIRONMENT_OPTION: .*foo/],
    [
      ['launch', 'tiny', 'model.path=nope'],
      /SINKFLEX_CHECKPOINT_MISSING: .*nope.*a model folder holds config\.json and model\.safetensors/,
    ],
    [['launch', '--fast'], /unknown option '--fast'/],
    [['lunch'], /unknown command 'lunch'/],
    [['evaluate', 'full'], /SINKFLEX_RESUME/],
    [['evaluate', 'tiny', '--endpoint', 'http://127.0.0.1:1/v1', '--also', 'val.temperature=0'], /SINKFLEX_USAGE.*--also/],
    [['evaluate', 'run', '--model', 'x'], /SINKFLEX_USAGE.*--model goes with --endpoint/],
    [['bench', 'speed'], /no suite "speed"; one of: .*pipeline/],
    [['bench', 'pipeline', '--rows', 'zzz'], /no row contains "zzz"/],
    [['study', '--seeds', 'many'], /--seeds = "many"/],
  ];
  for (const [words, message] of cases) {
    const { code, out, errors } = await sinkflex(t, words, { cwd });
    t.equal(code, 2, `${words.join(' ')}: ${errors}`);
    t.match(errors, message);
    t.notMatch(errors + out, /^\s+at .*\(|start \.\.\./m, 'no stack, and nothing was begun');
  }
  t.same(readdirSync(cwd).sort(), ['bad.yaml', 'file', 'full', 'run'], 'nothing half-written');
  t.notOk(existsSync(join(cwd, 'runs')));
  process.env.SINKFLEX_CPU = 'nonsense';
  const cpu = await sinkflex(t, ['launch', 'tiny'], { cwd }).finally(() => delete process.env.SINKFLEX_CPU);
  t.match(cpu, { code: 2, errors: /SINKFLEX_CPU_UNSUPPORTED: .*SINKFLEX_CPU=nonsense: unset it.*portable/ });
  t.notOk(existsSync(join(cwd, 'runs')));
  const alone = child(['launch', 'dsk'], cwd);
  t.match(alone, { code: 2, errors: /did you mean desk/ }, 'the same in a process of its own');
  t.match((await sinkflex(t, ['launch', 'dsk', '--debug'], { cwd })).errors, /\n\s+at /, 'the stack with --debug');
});

t.test('a module of the user registers what the settings then may name', async (t) => {
  const entry = "create() {}, summary: '', chat: {}";
  const cwd = t.testdir({
    settings: {
      'mine.yaml': 'env: { module: ./mine.js, name: mine }\nalgorithm.adv_estimator: mine\nactor.policy_loss.loss_mode: mine\n',
      'mine.js': `import { register, registerAdvantageEstimator, registerPolicyLoss } from 'sinkflex/actors';
        register({ name: 'mine', ${entry} });
        registerAdvantageEstimator('mine', () => new Float64Array(0));
        registerPolicyLoss('mine', { compute() {} });`,
    },
    'nothing.mjs': '',
    'broken.mjs': "throw new Error('no licence')",
    node_modules: { desks: { 'package.json': '{ "main": "desks.cjs" }', 'desks.cjs': '' } },
  });
  for (let again = 0; again < 2; again++) {
    const r = await sinkflex(t, ['launch', 'tiny', '--config', 'settings/mine.yaml', '--dry-run'], { cwd });
    t.equal(r.code, 0, r.errors);
    t.match(parse(r.out), {
      env: { name: 'mine', module: join(cwd, 'settings/mine.js') },
      algorithm: { adv_estimator: 'mine' },
      actor: { policy_loss: { loss_mode: 'mine' } },
    });
  }
  const cases: [string[], RegExp][] = [
    [
      ['env.module=settings/mine.mjs'],
      /SINKFLEX_ENVIRONMENT_MODULE: .*no file .*settings\/mine\.mjs, and no package of that name.*built module/,
    ],
    [['env.module=./broken.mjs'], /SINKFLEX_ENVIRONMENT_MODULE: .*broken\.mjs cannot be imported: no licence/],
    [
      ['env.module=nothing.mjs', 'env.name=colours'],
      /SINKFLEX_SETTINGS[\s\S]*env\.name = "colours"[\s\S]*nothing\.mjs registers none of that name/,
    ],
    [['env.module=desks', 'env.name=dsk'], /did you mean desk\?.*desks\.cjs registers none/],
    [
      ['reward.components=[{kind: judge, name: polite, base_url: "http://127.0.0.1:9/v1", model: m, rubric: r}]'],
      /SINKFLEX_REWARD_OPTION: reward polite: the judge at http:\/\/127\.0\.0\.1:9\/v1 cannot be reached/,
    ],
    [['algorithm.adv_estimator=grop'], /no such advantage estimator; did you mean grpo\?/],
    [['actor.policy_loss.loss_mode=ppo'], /no such policy loss; there are vanilla, gspo, cispo.*needs env\.module/],
  ];
  for (const [words, message] of cases) {
    const { code, errors } = await sinkflex(t, ['launch', 'tiny', '--dry-run', ...words], { cwd });
    t.equal(code, 2, words.join(' '));
    t.match(errors, message);
  }
});

t.test('explanations', async (t) => {
  t.match(explain(Object.assign(new Error('listen EADDRINUSE: address already in use 127.0.0.1:80'), { code: 'EADDRINUSE' })), {
    exitCode: 2,
    text: /port is taken/,
  });
  t.match(explain(Object.assign(new Error('write'), { code: 'ENOSPC' })), {
    exitCode: 2,
    text: /SINKFLEX_DISK_FULL: write: free some space/,
  });
  t.match(explain(new SinkflexError('SINKFLEX_OS_FAILED', 'write /x: No space left on device')), { exitCode: 2, text: /DISK_FULL/ });
  t.match(explain(new Error('boom')), { exitCode: 1, text: /unexpected: boom[\s\S]*--debug/ });
  t.match(explain(new Error('outer', { cause: new Error('inner') }), true).text, /outer[\s\S]*caused by Error: inner/);
  t.match(explain('text'), { exitCode: 1 });
});

t.test('doctor examines the machine', async (t) => {
  const { code, out } = child(['doctor', '--json'], process.cwd());
  const checks = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { name: string; state: string; found: string });
  t.same(
    checks.map((c) => c.name),
    ['node', 'native addon', 'cores', 'memory', 'disk', 'run folders', 'open files', 'platform', 'CUDA backend', 'bench peers'],
  );
  t.equal(code, checks.some((c) => c.state === 'fail') ? 2 : 0);
  t.ok(checks.every((c) => c.found !== ''));
});

t.test('doctor --model: memory by category, and the longest sequence that fits', async (t) => {
  const cwd = t.testdir({
    'config.json': JSON.stringify({
      ...{ model_type: 'gpt_oss', architectures: ['GptOssForCausalLM'], vocab_size: 96, hidden_size: 32, intermediate_size: 32 },
      ...{
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 16,
        num_local_experts: 4,
        num_experts_per_tok: 2,
      },
      ...{
        sliding_window: 16,
        layer_types: ['full_attention', 'sliding_attention'],
        rms_norm_eps: 1e-5,
        rope_theta: 10000,
        swiglu_limit: 7,
      },
      ...{ tie_word_embeddings: false, max_position_embeddings: 128, attention_bias: true, initializer_range: 0.02 },
    }),
  });
  const { code, out } = child(['doctor', '--model', cwd, '--tokens', '64', '--json'], process.cwd());
  t.equal(code, 0);
  const m = JSON.parse(out) as { tokens: number; available: number; variants: { memory: Record<string, number>; longest: number }[] };
  t.equal(m.tokens, 64);
  const [plain, checkpointed] = m.variants as [(typeof m.variants)[0], (typeof m.variants)[0]];
  const { total, ...parts } = plain.memory;
  t.equal(
    Object.values(parts).reduce((a, b) => a + b, 0),
    total,
  );
  t.ok(checkpointed.memory.activations! < plain.memory.activations!);
  t.ok(checkpointed.longest > plain.longest && plain.longest > 64);
  t.match(child(['doctor', '--model', cwd], process.cwd()).out, /training on 4,096 tokens[\s\S]*activations[\s\S]*longest sequence/);
  t.not(child(['doctor', '--model', cwd, '--tokens', 'x'], process.cwd()).code, 0);
});

t.test('without the addon: one message with the fix, and a doctor that says what is missing', async (t) => {
  const copy = t.testdir();
  const root = process.cwd();
  for (const part of ['kernels', 'runtime', 'actors', 'scripts', 'joined'].filter((name) => existsSync(join(root, 'dist', name))))
    cpSync(join(root, 'dist', part), join(copy, 'dist', part), { recursive: true });
  cpSync(join(root, 'package.json'), join(copy, 'package.json'));
  cpSync(join(root, 'scripts/presets'), join(copy, 'scripts/presets'), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  const run = (words: string[]) =>
    spawnSync(process.execPath, [join(copy, 'dist/scripts/sinkflex.js'), ...words], { encoding: 'utf8', cwd: copy });
  const launch = run(['launch', 'tiny']);
  t.match(launch, { status: 2, stderr: /SINKFLEX_ADDON_MISSING: .*install/ });
  t.notMatch(launch.stderr, /^\s+at /m);
  t.notOk(existsSync(join(copy, 'runs')));
  t.match(run(['doctor']), { status: 2, stdout: /FAIL +native addon/ });
});

t.test('a program passes settings as it likes', async (t) => {
  const { config, preset } = await compose({
    preset: 'tiny',
    values: { source: 'train()', values: { seed: 3, 'rollout.n': 5, rollout: { temperature: 0.9 } } },
  });
  t.equal(preset, 'tiny');
  t.match(config, { seed: 3, rollout: { n: 5, temperature: 0.9 }, sft: { total_steps: 20 } });
  t.equal((await compose({})).preset, 'desk');
});

t.test('an agent checks where large values go before it joins', async (t) => {
  const folder = t.testdir({});
  const small = await sinkflex(t, ['agent', '--join', folder, '--object-store-memory', '5']);
  t.match(small.errors, /objectStoreMemory.*1048576/s);
  const nowhere = await sinkflex(t, ['agent', '--join', folder, '--spill-folder', join(folder, 'none')]);
  t.match(nowhere.errors, /spillFolder.*a folder that is there/s);
  t.not(small.code, 0);
  t.not(nowhere.code, 0);
});
