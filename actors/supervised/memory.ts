/** Refuses a fine-tuning that cannot fit, before anything is written or allocated. */
import {
  type LoraConfig,
  longestSequence,
  type ModelConfig,
  type MomentDtype,
  os,
  SinkflexError,
  trainingMemory,
  type WeightDtype,
} from '../../kernels/index.ts';

const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MiB`;

/** SINKFLEX_MEMORY_SHORT where a pass over the longest example alone takes more than `available` bytes. */
export function checkTrainingMemory(
  config: ModelConfig,
  o: {
    longest: number;
    checkpointing: boolean;
    threads: number;
    lora?: LoraConfig | undefined;
    dtype?: WeightDtype;
    moments?: MomentDtype;
  },
  available = os.availableMemory(),
): void {
  const { longest, ...kept } = o;
  const { total, ...parts } = trainingMemory(config, { lengths: [longest], ...kept });
  if (total <= available) return;
  const fits = longestSequence(config, available, kept);
  const numbers = Object.entries(parts).map(([name, bytes]) => `${name} ${mib(bytes)}`);
  const shorter = fits === 0 ? 'no sequence fits' : `${fits} tokens fit: lower --max-length to that`;
  throw new SinkflexError(
    'SINKFLEX_MEMORY_SHORT',
    `training on the longest example (${longest} tokens) takes ${mib(total)}, ${mib(available)} are available (${numbers.join(', ')}); ` +
      `${[shorter, ...lighter(o), 'or use a machine with more memory'].join(', ')}`,
    { details: { ...parts, total, available, longestSequence: fits } },
  );
}

/** Options that would take less and are not taken yet. */
function lighter(o: Parameters<typeof checkTrainingMemory>[1]): string[] {
  return [
    ...(o.checkpointing ? [] : ['add --gradient-checkpointing']),
    ...(o.lora === undefined ? ['learn adapters alone (--lora-rank)'] : []),
    ...((o.dtype ?? 'float32') !== 'float32' ? [] : ['store matrices in half the bytes (--dtype bfloat16)']),
    ...(o.moments === '8bit' ? [] : ['keep moments in a quarter (--optim adamw_8bit)']),
  ];
}
