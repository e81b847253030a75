// --device: whole commands on the CUDA backend of the emulated machine, and what is said where there is no GPU.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { readMetrics, TRAINING_STEP } from '../../actors/index.ts';
import { emulatedBackend } from '../kernels/emulation.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.setTimeout(900_000);
const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
const emulated = await emulatedBackend();

function sinkflex(words: string[], library: string): Promise<{ code: number; out: string; errors: string }> {
  const env = { ...process.env, SINKFLEX_CUDA_LIBRARY: library };
  return new Promise((resolve) =>
    execFile(process.execPath, [entry, ...words], { env, timeout: 800_000, maxBuffer: 1 << 26 }, (error, out, errors) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, errors }),
    ),
  );
}

/** The tiny job, smaller still: an emulated GPU takes seconds for what one takes microseconds for. */
const small = [
  ...['data.train_batch_size=2', 'data.val_size=2', 'data.val_interim_size=1', 'rollout.n=2', 'rollout.num_actors=1'],
  ...['env.max_turns=2', 'rollout.max_tokens_per_turn=6', 'sft.total_steps=1', 'sft.train_batch_size=2', 'sft.demonstrations=8'],
  ...['trainer.total_training_steps=1', 'trainer.test_freq=0', 'model.hidden_size=16', 'model.intermediate_size=16'],
  ...['model.num_attention_heads=2', 'model.num_key_value_heads=1', 'trainer.unresponsive_timeout_s=null'],
  'actor.entropy_coeff=0.1', // a gradient whatever the rewards are
];

t.test('launch trains a run on it, evaluate and generate go on there; the same settings on the CPU agree', async (t) => {
  const folder = t.testdir();
  const run = (name: string, device: string) =>
    sinkflex(['launch', 'tiny', '--mode', 'sync', '--device', device, '--output', join(folder, name), ...small], emulated);
  const [gpu, cpu] = [await run('gpu', 'cuda:0'), await run('cpu', 'cpu')];
  t.equal(gpu.code, 0, gpu.errors);
  t.equal(cpu.code, 0, cpu.errors);
  const first = (name: string): Record<string, unknown> =>
    readMetrics(join(folder, name, 'metrics.jsonl')).find((row) => TRAINING_STEP in row && 'actor/grad_norm' in row)!;
  const [ours, theirs] = [first('gpu'), first('cpu')];
  t.ok(Number(theirs['actor/grad_norm']) > 0);
  for (const name of ['actor/grad_norm', 'actor/entropy'])
    t.ok(
      Math.abs(Number(ours[name]) - Number(theirs[name])) <= 1e-3 * Math.abs(Number(theirs[name])),
      `${name}: ${ours[name]}, ${theirs[name]}`,
    );

  const scored = await sinkflex(['evaluate', join(folder, 'gpu'), '--device', 'cuda', '--json', 'data.val_size=1'], emulated);
  t.equal(scored.code, 0, scored.errors);
  const ask = (device: string) =>
    sinkflex(['generate', join(folder, 'gpu'), 'hello', '--raw', '--json', '-n', '3', '-t', '0', '--device', device], emulated);
  const [drawn, expected] = [await ask('cuda'), await ask('cpu')];
  t.equal(drawn.code, 0, drawn.errors);
  const ids = ({ out }: { out: string }) => (JSON.parse(out) as { token_ids: number[] }).token_ids;
  t.same(ids(drawn), ids(expected));

  const examples = join(folder, 'examples.jsonl');
  writeFileSync(examples, '{"text":"one two"}\n{"text":"two three"}\n');
  const tune = ['sft', examples, '--model', join(folder, 'gpu'), '--epochs', '1', '--batch-size', '2', '--device', 'cuda', '--json'];
  const tuned = await sinkflex([...tune, '--output', join(folder, 'tuned')], emulated);
  t.equal(tuned.code, 0, tuned.errors);
  t.match(JSON.parse(tuned.out), { steps: 1 });
});

t.test('what is missing is said before anything starts, by doctor too', async (t) => {
  const folder = join(t.testdir(), 'run');
  const launch = (library: string, device: string) => sinkflex(['launch', 'tiny', '--device', device, '--output', folder], library);
  for (const [library, device, message] of [
    ['nowhere.so', 'cuda', /SINKFLEX_BACKEND_MISSING[\s\S]*there is no backend library .*nowhere\.so[\s\S]*npm run build:cuda/],
    ['', 'cuda:0', /SINKFLEX_(BACKEND_MISSING|DEVICE_UNAVAILABLE)/],
    ['package.json', 'cuda:0', /SINKFLEX_BACKEND_MISSING[\s\S]*does not load/],
    [emulated, 'cuda:7', /SINKFLEX_DEVICE_UNAVAILABLE[\s\S]*there is no GPU 7/],
    [emulated, 'gpu', /SINKFLEX_SETTINGS[\s\S]*there is no device "gpu": it is cpu, cuda/],
  ] as const) {
    if (library === '' && process.env.SINKFLEX_TEST_BACKEND !== undefined) continue;
    const { code, errors } = await launch(library, device);
    t.not(code, 0);
    t.match(errors, message);
  }
  const slots = await sinkflex(['launch', 'tiny', '--device', 'cuda', 'actor.optim.state_in_slots=true', '--dry-run'], emulated);
  t.match(slots.errors, /state_in_slots: a trainer on a GPU/);
  const plan = await sinkflex(['launch', 'tiny', '--dry-run', 'rollout.num_actors=3', 'rollout.device=[cuda:0,cuda:1]'], emulated);
  t.match(plan.out, /rollout-0 .*cuda:0[\s\S]*rollout-1 .*cuda:1[\s\S]*rollout-2 .*cuda:0[\s\S]*trainer .*cpu[\s\S]*of these on GPUs/);
  const doctor = async (library: string) => (await sinkflex(['doctor'], library)).out;
  t.match(await doctor(emulated), /CUDA backend +loaded, cuda:0 is emulated/);
  t.match(await doctor('nowhere.so'), /CUDA backend +.*nowhere\.so/);
});
