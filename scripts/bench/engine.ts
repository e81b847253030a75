// Suite `engine`: products, generation, training steps and sink attention beside torch, transformers and llama.cpp, the same work in the
// same run, float32, equal threads.
import { attention, attentionPeak } from './engine/attention.ts';
import { gemmPeak, gemmTorch } from './engine/gemm.ts';
import { decodeMany, decodeOne, prefill } from './engine/generation.ts';
import { trainCompiled, trainEager, trainMoe } from './engine/training.ts';
import type { Suite } from './rows.ts';

export const engineSuite: Suite = {
  'gemm.1024.peak': gemmPeak,
  'gemm.1024': gemmTorch,
  'prefill.30m': (context) => prefill(context, '30m'),
  'decode.1.30m': (context) => decodeOne(context, '30m'),
  'decode.32.30m': (context) => decodeMany(context, '30m'),
  'prefill.125m': (context) => prefill(context, '125m'),
  'decode.1.125m': (context) => decodeOne(context, '125m'),
  'decode.32.125m': (context) => decodeMany(context, '125m'),
  'train.30m': (context) => trainEager(context, '30m'),
  'train.30m.compile': (context) => trainCompiled(context, '30m'),
  'train.125m': (context) => trainEager(context, '125m'),
  'train.125m.compile': (context) => trainCompiled(context, '125m'),
  'train.moe': trainMoe,
  'attention.causal': (context) => attention(context, -1),
  'attention.window127': (context) => attention(context, 127),
  'attention.memory': attentionPeak,
};
