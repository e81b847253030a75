// llama.cpp's side of the suite `engine`, through node-llama-cpp: a line of JSON in, a line of JSON out; ends with its input.
// Arguments: the entry of node-llama-cpp, threads.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

// What is used of node-llama-cpp; it is no dependency of the project.
interface Sequence {
  evaluate(tokens: number[], o: { temperature: number; yieldEogToken: boolean }): AsyncGenerator<number>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  clearHistory(): Promise<void>;
}
interface Context {
  getSequence(): Sequence;
  dispose(): Promise<void>;
}
interface LlamaModel {
  createContext(o: object): Promise<Context>;
}
interface NodeLlamaCpp {
  getLlama(o: object): Promise<{ loadModel(o: { modelPath: string }): Promise<LlamaModel> }>;
}

interface Request {
  op: 'generate' | 'prefill';
  file: string;
  sequences: number;
  prompt: number;
  tokens: number;
  vocabulary: number;
}

const [entry, threads] = process.argv.slice(2) as [string, string];
const { getLlama } = (await import(pathToFileURL(entry).href)) as NodeLlamaCpp;
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: Number(threads), logLevel: 'error', progressLogs: false });

let held: { key: string; context: Context; sequences: Sequence[] } | undefined;
const models = new Map<string, LlamaModel>();

async function sequencesOf(r: Request): Promise<Sequence[]> {
  const key = `${r.file} ${r.sequences} ${r.prompt} ${r.tokens}`;
  if (held?.key === key) return held.sequences;
  await held?.context.dispose();
  let model = models.get(r.file);
  if (model === undefined) {
    model = await llama.loadModel({ modelPath: r.file });
    models.set(r.file, model);
  }
  const context = await model.createContext({
    contextSize: r.prompt + r.tokens + 8, // of each sequence
    sequences: r.sequences,
    batchSize: Math.max(512, r.sequences),
    threads: { ideal: Number(threads), min: Number(threads) },
    flashAttention: 'auto',
  });
  held = { key, context, sequences: Array.from({ length: r.sequences }, () => context.getSequence()) };
  return held.sequences;
}

/** The ids of shapes.ts. */
const ids = (r: Request, seed: number): number[] =>
  Array.from({ length: r.prompt }, (_, i) => 10 + ((7919 * i + 131 * seed) % (r.vocabulary - 10)));

/** Seconds from the request to the last token of the last sequence. */
async function turn(r: Request): Promise<number> {
  const sequences = await sequencesOf(r);
  for (const s of sequences) await s.clearHistory();
  const start = performance.now();
  await Promise.all(
    sequences.map(async (s, seed) => {
      if (r.op === 'prefill') return s.evaluateWithoutGeneratingNewTokens(ids(r, seed));
      let drawn = 0;
      for await (const _ of s.evaluate(ids(r, seed), { temperature: 0, yieldEogToken: true })) if (++drawn === r.tokens) break;
      if (drawn !== r.tokens) throw new Error(`llama.cpp ended after ${drawn} of ${r.tokens} tokens`);
    }),
  );
  return (performance.now() - start) / 1000;
}

const answer = (reply: object): void => {
  process.stdout.write(`${JSON.stringify(reply)}\n`);
};
answer({ value: 'llama.cpp' });
for await (const line of createInterface({ input: process.stdin })) {
  try {
    answer({ value: await turn(JSON.parse(line) as Request) });
  } catch (error) {
    answer({ error: String((error as Error).message ?? error) });
  }
}
process.exit(0);
