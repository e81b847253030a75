// The numeric contract: what a sequence gets does not depend on its company, on how its prompt is cut into chunks, on threads or on the
// instruction set; and generation's log-probabilities are the training pass's, bit for bit.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t from 'tap';
import { Engine, type GenerateResult, isSinkflexError, type WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels } from './engine-support.ts';

interface Turn {
  tokens: number[];
  maxNewTokens: number;
}
interface Play {
  turns: Turn[];
  key: number;
}

const maxSequenceTokens = 300;

const stores: WeightStore[] = [
  createStore(),
  createStore({ tie_word_embeddings: true, attention_bias: false, num_experts_per_tok: 1, sliding_window: 1, vocab_size: 300 }, 2),
  createStore(
    {
      head_dim: 16,
      num_attention_heads: 6,
      num_key_value_heads: 1,
      hidden_size: 33,
      num_local_experts: 5,
      num_experts_per_tok: 3,
      sliding_window: 70,
    },
    3,
  ),
  ...Object.values(denseModels).map((over, i) => createStore(over, 4 + i)),
];

async function playThrough(engine: Engine, play: Play, temperature: number): Promise<GenerateResult[]> {
  const sequence = await engine.openSequence();
  const results: GenerateResult[] = [];
  try {
    for (const [turn, { tokens, maxNewTokens }] of play.turns.entries()) {
      results.push(
        await engine.generate(sequence, {
          tokens: Int32Array.from(tokens),
          maxNewTokens,
          stopTokens: [5],
          temperature,
          topP: play.key % 3 === 0 ? 0.9 : 1,
          topK: play.key % 5 === 0 ? 7 : 0,
          key: [7, play.key, 0, turn],
        }),
      );
    }
  } finally {
    engine.closeSequence(sequence);
  }
  return results;
}

/** The tokens of a whole play, and where its generated ones stand. */
function transcript(play: Play, results: GenerateResult[]): { ids: number[]; generated: { at: number; logprob: number }[] } {
  const ids: number[] = [];
  const generated: { at: number; logprob: number }[] = [];
  for (const [i, result] of results.entries()) {
    ids.push(...play.turns[i]!.tokens);
    for (const [j, token] of result.tokens.entries()) {
      generated.push({ at: ids.length, logprob: result.logprobs[j]! });
      ids.push(token);
    }
  }
  return { ids, generated };
}

const turn = fc.record({ tokens: fc.array(fc.nat(66), { minLength: 1, maxLength: 80 }), maxNewTokens: fc.integer({ min: 1, max: 24 }) });
const plays = fc.array(fc.record({ turns: fc.array(turn, { minLength: 1, maxLength: 2 }), key: fc.nat(1000) }), {
  minLength: 1,
  maxLength: 9,
});
const scenario = fc.record({
  store: fc.nat(stores.length - 1),
  plays,
  temperature: fc.constantFrom(0, 0.7, 1),
  threads: fc.constantFrom(1, 2, 3),
  maxSequences: fc.constantFrom(1, 3, 16),
  maxNumBatchedTokens: fc.constantFrom(1, 17, 64, 256),
  // Prompts that begin alike, with and without sharing what was read, and room for one sequence, a few, or all.
  alike: fc.constantFrom(0, 20, 64, 150),
  prefixCaching: fc.boolean(),
  cacheTokens: fc.constantFrom(320, 700, 16 * 320),
  packing: fc.array(fc.nat(3), { minLength: 9, maxLength: 9 }),
});

if (process.argv.includes('--digest')) {
  try {
    console.log(`digest ${await digest()}`);
  } catch (e) {
    console.log(isSinkflexError(e) ? e.code : e);
  }
  process.exit(0);
}

t.test('generation equals forward bit for bit, alone or in company', async (t) => {
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(scenario, async (s) => {
      const store = stores[s.store]!;
      const { threads, maxSequences, maxNumBatchedTokens, prefixCaching, cacheTokens } = s;
      const engine = new Engine({ store, threads, maxSequences, maxSequenceTokens, maxNumBatchedTokens, prefixCaching, cacheTokens });
      const head = Array.from({ length: s.alike }, (_, i) => (i * 7 + 3) % 67);
      for (const play of s.plays) play.turns[0]!.tokens = [...head, ...play.turns[0]!.tokens];
      const alone = new Engine({ store, maxSequences: 1, maxSequenceTokens, prefixCaching: false });
      try {
        const results = await Promise.all(s.plays.map((play) => playThrough(engine, play, s.temperature)));
        const scripts = s.plays.map((play, i) => transcript(play, results[i]!));
        // forward in up to four batches of arbitrary make-up
        for (let batch = 0; batch < 4; batch++) {
          const chosen = scripts.filter((_, i) => s.packing[i] === batch);
          if (chosen.length === 0) continue;
          const cuSeqlens = Int32Array.from([0, ...chosen.map((_, i) => chosen.slice(0, i + 1).reduce((n, c) => n + c.ids.length, 0))]);
          const { logprobs } = await engine.forward(
            { ids: Int32Array.from(chosen.flatMap((c) => c.ids)), cuSeqlens },
            { temperature: s.temperature || 1, keep: s.threads === 2 },
          );
          for (const [i, c] of chosen.entries()) {
            for (const { at, logprob } of c.generated) {
              compared++;
              if (!Object.is(logprobs[cuSeqlens[i]! + at], logprob)) {
                throw new Error(`token ${at}: forward ${logprobs[cuSeqlens[i]! + at]}, generation ${logprob}`);
              }
            }
          }
        }
        const solo = await playThrough(alone, s.plays[0]!, s.temperature);
        for (const [i, result] of solo.entries()) {
          if (result.tokens.join() !== results[0]![i]!.tokens.join()) throw new Error('tokens depend on the company');
          if (Buffer.compare(bytes(result.logprobs), bytes(results[0]![i]!.logprobs)))
            throw new Error('log-probabilities depend on the company');
        }
      } finally {
        await Promise.all([engine.dispose(), alone.dispose()]);
      }
    }),
    { numRuns: Number(process.env.SINKFLEX_TEST_RUNS ?? 60), seed: 20 },
  );
  t.ok(compared > 1000, `${compared} log-probabilities compared`);
});

function bytes(x: Float32Array | Int32Array): Buffer {
  return Buffer.from(x.buffer, x.byteOffset, x.byteLength);
}

/** One number for everything the engine computes: tokens, log-probabilities, entropies, gradients and the stepped weights. */
async function digest(): Promise<string> {
  const hash = createHash('sha256');
  for (const [which, over] of [
    {},
    { tie_word_embeddings: true, head_dim: 16, hidden_size: 40, sliding_window: 33, vocab_size: 300 },
    denseModels.llama,
    denseModels.qwen2,
    denseModels.qwen3,
  ].entries()) {
    const store = createStore(over, 11 + which);
    const engine = new Engine({ store, threads: 1 + (which % 2), maxSequences: 8, maxSequenceTokens });
    const random = (n: number, salt: number): number[] => Array.from({ length: n }, (_, i) => Math.imul(i + salt, 2654435761) >>> 26);
    for (let round = 0; round < 3; round++) {
      const plays = [3, 17, 70, 129].map((n, i) => ({
        turns: [
          { tokens: random(n, i), maxNewTokens: 20 },
          { tokens: random(4, i), maxNewTokens: 20 },
        ],
        key: i,
      }));
      const results = await Promise.all(plays.map((play) => playThrough(engine, play, 1)));
      for (const result of results.flat()) hash.update(bytes(result.tokens)).update(bytes(result.logprobs));
      const scripts = plays.map((play, i) => transcript(play, results[i]!).ids);
      const cuSeqlens = Int32Array.from([0, ...scripts.map((_, i) => scripts.slice(0, i + 1).flat().length)]);
      const { logprobs, entropy } = await engine.forward({ ids: Int32Array.from(scripts.flat()), cuSeqlens }, { keep: true });
      hash.update(bytes(logprobs)).update(bytes(entropy));
      await engine.backward({ dLogprobs: logprobs.map((_, i) => Math.sin(i)), dEntropy: entropy.map((_, i) => Math.cos(i) / 10) });
      for (const gradient of engine.gradients().values()) hash.update(bytes(gradient));
      await engine.optimizerStep({ lr: 1e-2, maxGradNorm: 1, weightDecay: 0.1, lineage: 0, version: round + 1 });
      const pin = store.pin();
      hash.update(pin.data);
      pin.release();
    }
    await engine.dispose();
    store.close();
  }
  return hash.digest('hex');
}

t.test('every instruction set gives the same bits', async (t) => {
  const digests = new Map<string, string>();
  for (const isa of ['avx512', 'avx2', 'neon', 'portable']) {
    const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), '--digest'], {
      env: { ...process.env, SINKFLEX_CPU: isa },
      encoding: 'utf8',
      timeout: 50_000,
    });
    const found = /digest ([0-9a-f]{64})/.exec(child.stdout);
    if (found) digests.set(isa, found[1]!);
    else if (/SINKFLEX_CPU_UNSUPPORTED/.test(child.stdout)) t.pass(`${isa} does not run here`, { skip: true });
    else t.fail(`${isa}: ${child.stdout}${child.stderr}`);
  }
  t.ok(digests.has('portable'));
  t.equal(new Set(digests.values()).size, 1, `one digest from ${[...digests.keys()].join(', ')}`);
});

t.teardown(() => {
  for (const store of stores) store.close();
});
