// Whole models through the CUDA backend on the emulated machine: forward, backward, a step and generation of the golden models, held against the
// CPU backend within the tolerances that hold it against the golden numbers.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Engine, readModelConfig, shardRange, WeightStore } from '../../kernels/index.ts';
import { emulatedBackend } from './emulation.ts';
import { createStore, fixtures, generateOnce, integers, maxDifference, readTensors, temporaryFolder } from './engine-support.ts';

t.setTimeout(900_000);
const backend = await emulatedBackend();
const models = fixtures === undefined ? [] : readdirSync(join(fixtures, 'models')).filter((name) => existsSync(expected(name)));

function expected(name: string): string {
  return join(fixtures!, 'expected', name, 'io.safetensors');
}

/** A model in two stores of the same weights, one engine on each backend. */
interface Pair {
  cpu: Engine;
  cuda: Engine;
}
function pairOf(t: { teardown(f: () => void | Promise<void>): void }, make: () => WeightStore, options = {}): Pair {
  const open = (extra: object): Engine => {
    const store = make();
    const engine = new Engine({ store, maxSequences: 3, maxSequenceTokens: 256, ...options, ...extra });
    t.teardown(async () => {
      await engine.dispose();
      store.close();
    });
    return engine;
  };
  return { cpu: open({ threads: 2 }), cuda: open({ backend }) };
}

function weightsOf(store: WeightStore): Map<string, Float32Array> {
  const version = store.pin();
  const copies = new Map([...store.tensors(version)].map(([name, { data }]) => [name, Float32Array.from(data as Float32Array)]));
  version.release();
  return copies;
}

const norm = (x: ArrayLike<number>): number => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));
/** The largest difference by norm; a tensor whose numbers cancel out (the bias of keys without a sink) is held against all of them. */
function worst(ours: Map<string, Float32Array>, theirs: Map<string, Float32Array>): { error: number; tensor: string } {
  const all = Math.max(...[...theirs.values()].map(norm));
  let found = { error: 0, tensor: 'none' };
  for (const [tensor, data] of theirs) {
    const mine = ours.get(tensor)!;
    const error = norm(data.map((x, i) => x - mine[i]!)) / Math.max(norm(data), 1e-2 * all);
    if (!(error <= found.error)) found = { error, tensor };
  }
  return found;
}
const changes = (after: Map<string, Float32Array>, before: Map<string, Float32Array>): Map<string, Float32Array> =>
  new Map([...after].map(([name, data]) => [name, data.map((x, i) => x - before.get(name)![i]!)]));

t.test('there are golden models', { skip: fixtures ? false : 'golden files are not here: set SINKFLEX_FIXTURES' }, (t) => {
  for (const name of ['gpt_oss', 'qwen2']) t.ok(models.includes(name), name);
  t.end();
});

for (const name of models) {
  t.test(`${name} forward, backward, step and generation`, async (t) => {
    const folder = join(fixtures!, 'models', name);
    const { cpu, cuda } = pairOf(t, () => {
      const store = WeightStore.create(readModelConfig(folder));
      store.loadFolder(folder);
      return store;
    });
    const io = readTensors(expected(name));
    const get = (key: string): Int32Array => integers(io.get(key)!.data);
    const packed = io.has('packed_ids');
    const ids = get(packed ? 'packed_ids' : 'input_ids');
    const batch = { ids, cuSeqlens: packed ? get('packed_cu_seqlens') : Int32Array.of(0, ids.length) };
    const dLogprobs = Float32Array.from(ids, (_, i) => (i % 3 === 0 ? 1 : -1) / ids.length);
    const dEntropy = Float32Array.from(ids, (_, i) => (i % 5) / ids.length);
    const dRouterAuxLoss = cpu.store.config.num_local_experts > 0 ? 0.5 : 0;

    const pass = async (engine: Engine, checkpointing = false) => {
      engine.zeroGradients();
      const forward = await engine.forward(batch, { keep: true, checkpointing, hidden: true, temperature: 0.8 });
      await engine.backward({ dLogprobs, dEntropy, dRouterAuxLoss });
      return { ...forward, gradients: engine.gradients() };
    };
    const [ours, theirs] = [await pass(cuda), await pass(cpu)];
    t.ok(maxDifference(ours.logprobs, theirs.logprobs) <= 2e-4, `log-probabilities ${maxDifference(ours.logprobs, theirs.logprobs)}`);
    t.ok(maxDifference(ours.entropy, theirs.entropy) <= 2e-4, `entropies ${maxDifference(ours.entropy, theirs.entropy)}`);
    t.ok(maxDifference(ours.hidden!, theirs.hidden!) <= 2e-4, `hidden states ${maxDifference(ours.hidden!, theirs.hidden!)}`);
    t.ok(Math.abs(ours.routerAuxLoss - theirs.routerAuxLoss) <= 1e-5, `router ${ours.routerAuxLoss}, ${theirs.routerAuxLoss}`);
    const gradient = worst(ours.gradients, theirs.gradients);
    t.ok(gradient.error <= 2e-4, `gradients: ${gradient.tensor} ${gradient.error}`);
    for (const [what, again] of [['again', await pass(cuda)] as const, ['with checkpointing', await pass(cuda, true)] as const]) {
      t.same(again.logprobs, ours.logprobs, `${what}: the same bits`);
      for (const [tensor, data] of again.gradients) t.same(data, ours.gradients.get(tensor), `${what}: ${tensor}`);
    }

    // Large enough an eps that the step is smooth in the gradient.
    const step = { lr: 1e-2, eps: 0.1, weightDecay: 0.1, maxGradNorm: 0.5, lineage: 1, version: 1 };
    const before = weightsOf(cpu.store);
    const norms = [await cuda.optimizerStep(step), await cpu.optimizerStep(step)].map(({ gradNorm }) => gradNorm);
    t.ok(Math.abs(norms[0]! - norms[1]!) <= 2e-4 * norms[1]!, `gradient norms ${norms}`);
    const moved = worst(changes(weightsOf(cuda.store), before), changes(weightsOf(cpu.store), before));
    t.ok(moved.error <= 2e-4, `the step: ${moved.tensor} ${moved.error}`);
    const after = [await cuda.forward(batch), await cpu.forward(batch)];
    t.ok(maxDifference(after[0]!.logprobs, after[1]!.logprobs) <= 2e-4, 'log-probabilities after the step');
    t.notSame(after[0]!.logprobs, ours.logprobs);
  });

  t.test(`${name} generates the golden tokens`, async (t) => {
    const folder = join(fixtures!, 'models', name);
    const store = WeightStore.create(readModelConfig(folder));
    t.teardown(() => store.close());
    store.loadFolder(folder);
    const engine = new Engine({ store, backend, maxSequences: 3, maxSequenceTokens: 256, maxNumBatchedTokens: 40 });
    t.teardown(() => engine.dispose());
    const io = readTensors(expected(name));
    if (!io.has('greedy_ids')) return t.pass('no golden tokens');
    const tokens = integers(io.get('prompt_ids')!.data);
    const wanted = integers(io.get('greedy_ids')!.data);
    const request = { tokens, maxNewTokens: wanted.length, stopTokens: [], temperature: 0, key: [0, 0, 0, 0] as const };
    const drawn = await generateOnce(engine, request);
    t.same([...drawn.tokens], [...wanted]);
    if (io.has('greedy_logprobs')) t.ok(maxDifference(drawn.logprobs, io.get('greedy_logprobs')!.data) <= 2e-4, 'log-probabilities');
  });
}

t.test('a small model draws what the CPU draws, and replays its experts', async (t) => {
  const { cpu, cuda } = pairOf(t, () => createStore({}, 3), { recordExperts: true });
  const tokens = Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8);
  const key = [7, 1, 2, 3] as const;
  const edits = { logitBias: new Map([[3, 2]]), repetitionPenalty: 1.3, presencePenalty: 0.4 };
  for (const restriction of [{}, { topK: 4 }, { topP: 0.7 }, { minP: 0.2, topK: 9 }, { topK: 5, topP: 0.6 }]) {
    const request = { tokens, maxNewTokens: 12, stopTokens: [], temperature: 1, key, topLogprobs: 3, ...restriction, ...edits };
    const [ours, theirs] = [await generateOnce(cuda, request), await generateOnce(cpu, request)];
    t.same([...ours.tokens], [...theirs.tokens], JSON.stringify(restriction));
    t.ok(maxDifference(ours.logprobs, theirs.logprobs) <= 1e-4, 'log-probabilities');
    t.same(ours.experts, theirs.experts, 'the experts');
    t.same(ours.topTokens, theirs.topTokens, 'the most likely tokens');
  }
  const batch = { ids: tokens, cuSeqlens: Int32Array.of(0, 5, tokens.length) };
  const { num_hidden_layers: layers, num_experts_per_tok: most } = cpu.store.config;
  const experts = Uint8Array.from({ length: tokens.length * layers * most }, (_, i) => (i % most) + (i % 5 === 0 ? 0 : 1));
  for (let i = 0; i < experts.length; i += most) if (experts[i] === experts[i + 1]) experts[i] = 255;
  const replayed = [await cuda.forward(batch, { experts }), await cpu.forward(batch, { experts })];
  t.ok(maxDifference(replayed[0]!.logprobs, replayed[1]!.logprobs) <= 1e-4, 'replayed');
  t.notSame(replayed[0]!.logprobs, (await cuda.forward(batch)).logprobs);
});

t.test('adapters over a frozen base; moments that are saved and read', async (t) => {
  const { cpu, cuda } = pairOf(t, () => {
    const store = WeightStore.createAdapter(createStore({}, 21), { r: 3, lora_alpha: 7, target_modules: ['all-linear', 'experts'] });
    store.initialise(4);
    return store;
  });
  const batch = { ids: Int32Array.from({ length: 36 }, (_, i) => (i * 31 + 7) % 67), cuSeqlens: Int32Array.of(0, 13, 14, 36) };
  const dLogprobs = Float32Array.from(batch.ids, (_, i) => Math.sin(i + 1));
  const folder = temporaryFolder(t);
  for (const version of [1, 2, 3]) {
    const step = { lr: 0.05, eps: 0.1, lineage: 0, version };
    const results = [];
    for (const [i, engine] of [cuda, cpu].entries()) {
      const { logprobs } = await engine.forward(batch, { keep: true });
      await engine.backward({ dLogprobs });
      const gradients = engine.gradients();
      const path = join(folder, `moments-${i}`);
      await engine.optimizerStep(step);
      await engine.saveOptimizer(path);
      await engine.loadOptimizer(path);
      results.push({ logprobs, gradients });
    }
    t.ok(maxDifference(results[0]!.logprobs, results[1]!.logprobs) <= 2e-4, `log-probabilities before step ${version}`);
    const gradient = worst(results[0]!.gradients, results[1]!.gradients);
    t.ok(gradient.error <= 1e-3, `gradients: ${gradient.tensor} ${gradient.error}`);
  }
});

t.test('data-parallel trainers of one step: each its part of the batch, then its shard of the tensors', async (t) => {
  const ids = Int32Array.from({ length: 36 }, (_, i) => (i * 31 + 7) % 67);
  const dLogprobs = Float32Array.from(ids, (_, i) => Math.sin(i + 1));
  const parts = [
    { from: 0, to: 14, cuSeqlens: Int32Array.of(0, 13, 14) },
    { from: 14, to: 36, cuSeqlens: Int32Array.of(0, 22) },
  ];
  const step = { lr: 0.05, eps: 0.1, maxGradNorm: 0.5, lineage: 0, version: 1 };
  const make = () => createStore({}, 21);
  const pairs = parts.map((_, rank) => pairOf(t, make, { optimizer: { shard: { rank, members: 2 } } }));
  const together = async (engines: Engine[]) => {
    for (const [rank, { from, to, cuSeqlens }] of parts.entries()) {
      await engines[rank]!.forward({ ids: ids.subarray(from, to), cuSeqlens }, { keep: true });
      await engines[rank]!.backward({ dLogprobs: dLogprobs.subarray(from, to) });
    }
    const [first, second] = engines.map((engine) => engine.flatGradients()) as [Float32Array, Float32Array];
    for (const [i, x] of first.entries()) first[i] = second[i] = x + second[i]!;
    const tensors = [];
    const norms = [];
    for (const [rank, engine] of engines.entries()) {
      const { from, to } = shardRange(engine.store.layout, { rank, members: 2 });
      const out = new Uint8Array(to - from);
      norms.push((await engine.shardStep(step, out)).gradNorm);
      tensors.push(...new Float32Array(out.buffer));
    }
    t.equal(norms[0], norms[1]);
    return { norm: norms[0]!, weights: Float32Array.from(tensors) };
  };
  const ours = await together(pairs.map(({ cuda }) => cuda));
  const theirs = await together(pairs.map(({ cpu }) => cpu));
  t.ok(Math.abs(ours.norm - theirs.norm) <= 2e-4 * theirs.norm, `gradient norms ${ours.norm}, ${theirs.norm}`);
  t.ok(maxDifference(ours.weights, theirs.weights) <= 1e-5, `weights ${maxDifference(ours.weights, theirs.weights)}`);
  const whole = pairOf(t, make).cpu;
  await whole.forward({ ids, cuSeqlens: Int32Array.of(0, 13, 14, 36) }, { keep: true });
  await whole.backward({ dLogprobs });
  const { gradNorm } = await whole.optimizerStep(step);
  t.ok(Math.abs(gradNorm - theirs.norm) <= 1e-5 * gradNorm, 'the step of one trainer');
});
