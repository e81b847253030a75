// Rows train.*: one training step, 2,048 tokens in segments of 512: log-probabilities of every next token, the gradients of their mean, and
// AdamW. The rivals run transformers' model on the same folder with a batch of four, torch's loss and its fused AdamW.
import { Engine, type ForwardResult } from '../../../kernels/index.ts';
import type { SuiteContext } from '../rows.ts';
import { compare, type Rival, timed } from './compare.ts';
import { type ModelName, modelOf, THREADS, tokenIds } from './shapes.ts';

const SEGMENTS = 4;
const LENGTH = 512;
const TOKENS = SEGMENTS * LENGTH;

async function measure(
  context: SuiteContext,
  name: ModelName,
  turns: number,
  bars: { label: string; compiled: boolean; bar: number }[],
): Promise<void> {
  const model = modelOf(name, context);
  const engine = new Engine({ store: model.store, threads: THREADS, maxSequences: 1, maxSequenceTokens: 64 });
  const ids = Int32Array.from(Array.from({ length: SEGMENTS }, (_, s) => [...tokenIds(LENGTH, s, model.vocabulary)]).flat());
  const cuSeqlens = Int32Array.from({ length: SEGMENTS + 1 }, (_, s) => s * LENGTH);
  // The mean over all next tokens; a segment's first token has no prediction.
  const dLogprobs = new Float32Array(TOKENS).fill(-1 / (TOKENS - SEGMENTS));
  for (const first of cuSeqlens.subarray(0, SEGMENTS)) dLogprobs[first] = 0;
  let version = (model.store.current()?.version ?? 0) + 1;
  let last: ForwardResult | undefined;
  const step = async (): Promise<void> => {
    last = await engine.forward({ ids, cuSeqlens }, { keep: true });
    await engine.backward({ dLogprobs });
    await engine.optimizerStep({ lr: 1e-4, weightDecay: 0.1, lineage: 0, version: version++ });
  };
  const rivals = bars.map(({ label, compiled, bar }): Rival => {
    const args = { folder: model.folder, segments: SEGMENTS, length: LENGTH, vocabulary: model.vocabulary, compiled: compiled ? 1 : 0 };
    return { label, peer: 'torch', bar, turn: (torch) => torch.ask('train', args) };
  });
  try {
    await compare(context, {
      row: `train.${name}`,
      turns,
      ours: () => timed(step),
      rivals,
      details: () => ({
        parameters: model.parameters,
        tokens: TOKENS,
        loss: -last!.logprobs.reduce((a, b) => a + b, 0) / (TOKENS - SEGMENTS),
      }),
    });
  } finally {
    await engine.dispose();
  }
}

export const trainEager = (context: SuiteContext, name: '30m' | '125m'): Promise<void> =>
  measure(context, name, 5, [{ label: 'eager', compiled: false, bar: name === '30m' ? 1.1 : 1 }]);

export const trainCompiled = (context: SuiteContext, name: '30m' | '125m'): Promise<void> =>
  measure(context, name, 5, [{ label: 'compile', compiled: true, bar: 1 }]);

export const trainMoe = (context: SuiteContext): Promise<void> => measure(context, 'moe', 7, [{ label: 'eager', compiled: false, bar: 3 }]);
