// Rows pipeline.flip.*: from the flip of a version to the moment another process holds it pinned, whatever the size of the store. The reader
// has joined and its pages are populated. It sleeps until it is woken (the row); details give a reader that is awake, as a decode loop is, and
// the first decode step of an engine on the new version.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { freemem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { median } from '../../actors/index.ts';
import { parseModelConfig, WeightStore } from '../../kernels/index.ts';
import type { FlipReport, FlipRequest } from './flip-reader.ts';
import type { SuiteContext } from './rows.ts';

const READER = fileURLToPath(new URL('./flip-reader.js', import.meta.url));
/** The bar that the project set itself, in microseconds. */
const FLIP_BAR_US = 200;
const SLOTS = 3;

/** A model whose bytes lie in experts, of which a token touches one a layer: size without work. */
const modelOf = (size: { hidden: number; experts: number; layers: number }) =>
  parseModelConfig({
    model_type: 'gpt_oss',
    architectures: ['GptOssForCausalLM'],
    vocab_size: 256,
    hidden_size: size.hidden,
    intermediate_size: size.hidden,
    num_hidden_layers: size.layers,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 16,
    num_local_experts: size.experts,
    num_experts_per_tok: 1,
    sliding_window: 64,
    layer_types: Array.from({ length: size.layers }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention')),
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    swiglu_limit: 7,
    tie_word_embeddings: false,
    max_position_embeddings: 256,
    attention_bias: true,
  });

export const FLIP_SIZES = {
  '1mb': { hidden: 64, experts: 8, layers: 2 },
  '1gb': { hidden: 512, experts: 168, layers: 2 },
} as const;

export async function flip(context: SuiteContext, size: keyof typeof FLIP_SIZES): Promise<void> {
  const row = `pipeline.flip.${size}`;
  const store = await warmStore(context, row, modelOf(FLIP_SIZES[size]));
  if (!store) return;
  const reader = fork(READER, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], serialization: 'advanced' });
  try {
    await ask(reader, { kind: 'join', address: store.address });
    let version = store.current()!.version;
    const publish = async (kind: 'sleep' | 'spin' | 'decode'): Promise<FlipReport> => {
      const answer = ask(reader, { kind, after: version });
      await once(reader, 'message'); // the reader says that it waits
      // The slot holds a whole image already; the optimiser would have written into it before this moment.
      const writing = await store.segment.beginWrite({ timeoutMs: 10_000 });
      writing.publish({ lineage: 0, version: ++version });
      return answer;
    };
    const rounds = context.quick ? 20 : 200;
    const measure = async (kind: 'sleep' | 'spin' | 'decode', n: number) => {
      const reports: FlipReport[] = [];
      for (let i = 0; i < n; i++) reports.push(await publish(kind));
      return reports;
    };
    for (let i = 0; i < 2 * SLOTS; i++) await publish('decode'); // every slot is mapped and read once
    const asleep = (await measure('sleep', rounds)).map((r) => r.pinned);
    const awake = (await measure('spin', rounds)).map((r) => r.pinned);
    const decoded = await measure('decode', rounds);
    const whole = await ask(reader, { kind: 'read' });
    context.report({
      suite: 'pipeline',
      row,
      unit: 'us',
      ours: median(asleep),
      details: {
        awake_us: median(awake),
        p99_us: quantile(asleep, 0.99),
        awake_p99_us: quantile(awake, 0.99),
        // From the flip to the first token decoded with the new version, and what a decode step takes by itself.
        first_decode_us: median(decoded.map((r) => r.decoded)),
        decode_step_us: median(decoded.map((r) => r.step)),
        full_read_ms: whole.pinned / 1000,
        bytes: store.segment.slotBytes,
        rounds,
        bar_us: FLIP_BAR_US,
      },
    });
  } finally {
    reader.kill('SIGKILL');
    store.close();
  }
}

/** A store whose every slot holds a whole image, so that publishing measures the flip and not the first touch of memory. */
async function warmStore(context: SuiteContext, row: string, config: ReturnType<typeof modelOf>): Promise<WeightStore | undefined> {
  const store = WeightStore.create(config, { slots: SLOTS, maxSlots: SLOTS });
  const needed = (SLOTS + 1) * store.segment.slotBytes;
  if (freemem() < store.segment.slotBytes) {
    store.close();
    context.report({ suite: 'pipeline', row, skipped: `needs ${Math.round(needed / 2 ** 20)} MiB of free memory` });
    return undefined;
  }
  store.initialise(1);
  for (let version = 1; version < SLOTS; version++) {
    const first = store.pin();
    const writing = await store.segment.beginWrite();
    writing.data.set(first.data);
    writing.publish({ lineage: 0, version });
    first.release();
  }
  return store;
}

type Reader = ReturnType<typeof fork>;

async function ask(reader: Reader, request: FlipRequest): Promise<FlipReport> {
  return new Promise((done, failed) => {
    const finish = () => {
      reader.off('message', listener);
      reader.off('exit', died);
    };
    const died = () => {
      finish();
      failed(new Error('the reader process ended'));
    };
    const listener = (report: FlipReport) => {
      if (report.kind !== 'report') return;
      finish();
      done(report);
    };
    reader.on('message', listener);
    reader.on('exit', died);
    reader.send(request);
  });
}

const quantile = (values: readonly number[], q: number): number =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))]!;
