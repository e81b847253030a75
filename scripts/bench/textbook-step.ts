// Row pipeline.step.textbook: one GRPO step of the textbook's size (rollouts, reference KL, one AdamW update) on a model that we saved,
// against the straightforward PyTorch loop on the same folder, with the same prompts, group, turns and new tokens, both with two threads.
// Environments are free on both sides: the observation after a turn is canned random tokens.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { median, pack, type Recipe, Trainer, type Trajectory } from '../../actors/index.ts';
import { Engine, parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { peerMissing, runPeer } from './peer.ts';
import { ratioOf, type SuiteContext } from './rows.ts';

const ROW = 'pipeline.step.textbook';
/** Sizes of the textbook loop: the defaults of the peer script. */
const SIZE = { prompts: 3, group: 4, turns: 3, newTokens: 64, promptTokens: 64, observationTokens: 32, threads: 2 };
const EPISODE_TOKENS = SIZE.promptTokens + SIZE.turns * (SIZE.newTokens + SIZE.observationTokens);
const GENERATED = SIZE.prompts * SIZE.group * SIZE.turns * SIZE.newTokens;

/** About a million parameters, as the domain's own models are shaped. */
const MODEL = {
  model_type: 'gpt_oss',
  architectures: ['GptOssForCausalLM'],
  vocab_size: 1024,
  hidden_size: 128,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 16,
  num_local_experts: 4,
  num_experts_per_tok: 2,
  sliding_window: 128,
  layer_types: ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'],
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  swiglu_limit: 7,
  tie_word_embeddings: false,
  max_position_embeddings: 1024,
  attention_bias: true,
};

const RECIPE: Recipe = {
  advantage: { estimator: 'grpo', normalizeByStd: true, std: 'sample' },
  loss: { mode: 'vanilla', clipLow: 0.2, clipHigh: 0.2, dualClip: null, aggregation: 'seq-mean-token-mean', horizon: EPISODE_TOKENS },
  kl: { coefficient: 0.04, estimator: 'k3' },
  entropyCoefficient: 0,
  correction: { mode: null, threshold: 2 },
  shaping: { overlong: null, kl: null, maskTruncated: false },
  oldIsBehaviour: false,
  epochs: 1,
  miniBatchPrompts: null,
  microBatchTokens: 8192,
  optimizer: { gradClip: 1, weightDecay: 0, betas: [0.9, 0.999], eps: 1e-8 },
  temperature: 1,
};

export async function textbookStep(context: SuiteContext): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-bench-'));
  try {
    const ours = await measureOurs(folder, context.quick ? 3 : 15);
    const details: Record<string, number | string> = {
      step_s: ours.step,
      rollout_s: ours.rollout,
      train_s: ours.train,
      parameters: ours.parameters,
      generated_tokens_per_step: GENERATED,
    };
    const missing = context.peers ? peerMissing('torch_textbook_grpo.py') : 'not asked for (--peers)';
    if (missing) {
      context.report({ suite: 'pipeline', row: ROW, unit: 'tokens/s', ours: GENERATED / ours.step, details });
      if (context.peers) context.report({ suite: 'pipeline', row: ROW, skipped: `peer: ${missing}` });
      return;
    }
    context.note(`ours: ${ours.step.toFixed(3)} s a step; the rival takes some 10 s a step ...`);
    const steps = context.quick ? 1 : 3;
    const peer = await runPeer(
      'torch_textbook_grpo.py',
      [
        '--checkpoint',
        folder,
        '--steps',
        String(steps),
        '--prompts',
        String(SIZE.prompts),
        '--group',
        String(SIZE.group),
        '--turns',
        String(SIZE.turns),
        '--new-tokens',
        String(SIZE.newTokens),
        '--prompt-tokens',
        String(SIZE.promptTokens),
        '--observation-tokens',
        String(SIZE.observationTokens),
        '--threads',
        String(SIZE.threads),
      ],
      { threads: SIZE.threads, timeoutMs: 900_000 },
    );
    const peerRate = Number(peer.generated_tokens_per_second);
    context.report({
      suite: 'pipeline',
      row: ROW,
      unit: 'tokens/s',
      ours: GENERATED / ours.step,
      peer: peerRate,
      ratio: ratioOf(GENERATED / ours.step, peerRate, 'higher'),
      details: { ...details, peer_step_s: Number(peer.seconds_per_step), peer_parameters: Number(peer.parameters) },
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Medians over `steps` after one that warms up; leaves the model in `folder`. */
async function measureOurs(folder: string, steps: number): Promise<{ step: number; rollout: number; train: number; parameters: number }> {
  const config = parseModelConfig(MODEL);
  const store = WeightStore.create(config);
  store.initialise(1);
  store.saveFolder(folder);
  const frozen = WeightStore.create(config, { slots: 2 });
  frozen.loadFolder(folder);
  const policy = new Engine({ store, threads: SIZE.threads, maxSequences: SIZE.prompts * SIZE.group, maxSequenceTokens: EPISODE_TOKENS });
  const reference = new Engine({ store: frozen, threads: SIZE.threads, maxSequences: 1, maxSequenceTokens: 64 });
  const trainer = new Trainer({ store: store.address, threads: SIZE.threads, recipe: RECIPE });
  const times: { rollout: number; train: number }[] = [];
  for (let step = 0; step <= steps; step++) {
    const start = performance.now();
    const trajectories = await Promise.all(
      Array.from({ length: SIZE.prompts * SIZE.group }, (_, i) => rollout(policy, step, Math.floor(i / SIZE.group), i % SIZE.group)),
    );
    const rolled = performance.now();
    const batch = pack(trajectories);
    const { logprobs } = await reference.forward({ ids: batch.ids, cuSeqlens: batch.cuSeqlens }, { mask: batch.mask });
    await trainer.update(batch, { lr: 5e-5 }, logprobs);
    if (step > 0) times.push({ rollout: (rolled - start) / 1000, train: (performance.now() - rolled) / 1000 });
  }
  const pin = store.pin();
  const parameters = [...store.tensors(pin).values()].reduce((n, tensor) => n + tensor.data.length, 0);
  pin.release();
  await trainer.stop();
  await policy.dispose();
  await reference.dispose();
  store.close();
  frozen.close();
  return {
    step: median(times.map((t) => t.rollout + t.train)),
    rollout: median(times.map((t) => t.rollout)),
    train: median(times.map((t) => t.train)),
    parameters,
  };
}

/** One episode: prompt, then turns of exactly `newTokens`, each followed by an observation. */
async function rollout(engine: Engine, step: number, prompt: number, sample: number): Promise<Trajectory> {
  const ids: number[] = [];
  const [mask, logprobs, versions]: [number[], number[], number[]] = [[], [], []];
  const read = (tokens: Int32Array) => {
    for (const id of tokens) {
      ids.push(id);
      mask.push(0);
      logprobs.push(0);
      versions.push(-1);
    }
  };
  const sequence = await engine.openSequence();
  let tokens = canned(SIZE.promptTokens, step * 1000 + prompt);
  for (let turn = 0; turn < SIZE.turns; turn++) {
    read(tokens);
    const out = await engine.generate(sequence, {
      tokens,
      maxNewTokens: SIZE.newTokens,
      stopTokens: [],
      temperature: 1,
      key: [1, step * SIZE.prompts + prompt, sample, turn],
    });
    out.tokens.forEach((id, k) => {
      ids.push(id);
      mask.push(1);
      logprobs.push(out.logprobs[k]!);
      versions.push(out.versions[k]!);
    });
    tokens = canned(SIZE.observationTokens, 7 + turn + 31 * sample + 997 * prompt + 7919 * step);
  }
  engine.closeSequence(sequence);
  const odd = ids.slice(-SIZE.newTokens).filter((id) => id % 2 === 1).length;
  return {
    task: prompt,
    sample,
    group: String(prompt),
    seed: 0,
    ids: Int32Array.from(ids),
    mask: Uint8Array.from(mask),
    logprobs: Float32Array.from(logprobs),
    versions: Int32Array.from(versions),
    lineage: 0,
    reward: odd > SIZE.newTokens / 2 ? 1 : 0,
    rewardParts: {},
    stopReason: 'turns',
    turns: SIZE.turns,
    toolCalls: 0,
    malformed: 0,
    redone: 0,
    seconds: { total: 0, generate: 0, environment: 0 },
  };
}

function canned(length: number, seed: number): Int32Array {
  let x = (seed * 2654435761 + 1) >>> 0;
  return Int32Array.from({ length }, () => {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    return (x >>> 8) % MODEL.vocab_size;
  });
}
