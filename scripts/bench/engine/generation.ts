// Rows prefill.* and decode.*: greedy generation with one model on all sides, from the request to the last token of the last sequence.
// Nobody knows a stop token. llama.cpp and transformers draw tokens alone; ours also gives every token's log-probability.
import { Engine } from '../../../kernels/index.ts';
import type { SuiteContext } from '../rows.ts';
import { compare, timed } from './compare.ts';
import { ggufOf } from './peers.ts';
import { type ModelName, modelOf, THREADS, tokenIds } from './shapes.ts';

interface Work {
  row: string;
  sequences: number;
  prompt: number;
  /** Drawn for each sequence; the prefill rows draw one, or none where the rival can do without. */
  tokens: number;
  turns: number;
  bars: { llama: number; transformers: number };
}

async function measure(context: SuiteContext, name: ModelName, w: Work): Promise<void> {
  const model = modelOf(name, context);
  const prefill = w.tokens === 1;
  const engine = new Engine({
    store: model.store,
    threads: THREADS,
    maxSequences: w.sequences,
    maxSequenceTokens: w.prompt + w.tokens,
    maxNumBatchedTokens: w.sequences + 512, // llama.cpp's batch
  });
  let turns = 0;
  const generate = async (seed: number, turn: number): Promise<void> => {
    const sequence = await engine.openSequence();
    try {
      const { tokens } = await engine.generate(sequence, {
        // A prompt that no turn has seen: ours finds nothing in its cache.
        tokens: tokenIds(w.prompt, seed + turn * w.sequences, model.vocabulary),
        maxNewTokens: w.tokens,
        stopTokens: [],
        temperature: 0,
        key: [1, seed, 0, 0],
      });
      if (tokens.length !== w.tokens) throw new Error(`${tokens.length} tokens were drawn, not ${w.tokens}`);
    } finally {
      engine.closeSequence(sequence);
    }
  };
  const { sequences, prompt, tokens } = w;
  const asked = { sequences, prompt, tokens, vocabulary: model.vocabulary };
  const op = prefill ? 'prefill' : 'generate';
  try {
    await compare(context, {
      row: `${w.row}.${name}`,
      rate: { unit: 'tokens/s', perTurn: sequences * (prefill ? prompt : tokens) },
      turns: w.turns,
      ours: () => timed(() => Promise.all(Array.from({ length: sequences }, (_, seed) => generate(seed, turns++)))),
      rivals: [
        { label: 'llama.cpp', peer: 'llama.cpp', bar: w.bars.llama, turn: (llama) => llama.ask(op, { ...asked, file: ggufOf(model) }) },
        {
          label: 'transformers',
          peer: 'torch',
          bar: w.bars.transformers,
          turn: (torch) => torch.ask(op, { ...asked, folder: model.folder }),
        },
      ],
      details: () => ({ parameters: model.parameters, sequences, prompt, drawn: tokens }),
    });
  } finally {
    await engine.dispose();
  }
}

export const prefill = (context: SuiteContext, name: ModelName): Promise<void> =>
  measure(context, name, { row: 'prefill', sequences: 1, prompt: 512, tokens: 1, turns: 9, bars: { llama: 1, transformers: 1.2 } });

export const decodeOne = (context: SuiteContext, name: ModelName): Promise<void> =>
  measure(context, name, { row: 'decode.1', sequences: 1, prompt: 8, tokens: 64, turns: 7, bars: { llama: 1, transformers: 1 } });

export const decodeMany = (context: SuiteContext, name: ModelName): Promise<void> =>
  measure(context, name, { row: 'decode.32', sequences: 32, prompt: 8, tokens: 64, turns: 5, bars: { llama: 1.5, transformers: 3 } });
