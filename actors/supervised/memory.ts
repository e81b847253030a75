/** Refuses a fine-tuning that cannot fit, before anything is written or allocated. */
import { type LoraConfig, longestSequence, type ModelConfig, os, SinkflexError, trainingMemory } from '../../kernels/index.ts';

const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MiB`;

/** SINKFLEX_MEMORY_SHORT where a pass over the longest example alone, takes more than `available` bytes. */
export function checkTrainingMemory(
  config: ModelConfig,
  o: { longest: number; checkpointing: boolean; threads: number; lora?: LoraConfig | undefined },
  available = os.availableMemory(),
): void {
  const { checkpointing, threads } = o;
  const adapters = o.lora === undefined ? {} : { lora: o.lora };
  const { total, ...parts } = trainingMemory(config, { lengths: [o.longest], checkpointing, threads, ...adapters });
  if (total <= available) return;
  const fits = longestSequence(config, available, { checkpointing, threads, ...adapters });
  const numbers = Object.entries(parts).map(([name, bytes]) => `${name} ${mib(bytes)}`);
  const shorter = fits === 0 ? 'no sequence fits' : `${fits} tokens fit: lower --max-length to that`;
  throw new SinkflexError(
    'SINKFLEX_MEMORY_SHORT',
    `training on the longest example (${o.longest} tokens) takes ${mib(total)}, ${mib(available)} are available (${numbers.join(', ')}); ` +
      `${shorter}${checkpointing ? '' : ', add --gradient-checkpointing'}${o.lora === undefined ? ', learn adapters alone (--lora-rank)' : ''}, or use a machine with more memory`,
    { details: { ...parts, total, available, longestSequence: fits } },
  );
}
