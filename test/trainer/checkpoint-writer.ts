// Writes a small checkpoint; `node checkpoint-writer.js <folder> <begun|half|written>` is killed at that point of the writing.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { modelFolder, writeCheckpoint } from '../../actors/trainer/index.ts';

const weights = Buffer.alloc(20_000, 7);

export async function writeSmallCheckpoint(dir: string, step: number, killAt?: string): Promise<void> {
  const die = (point: string): void => {
    if (killAt === point) process.kill(process.pid, 'SIGKILL');
  };
  const ledger = { sampled: 0, trained: 0, filtered: {}, aborted: {}, inFlight: 0 };
  const state = { format: 1 as const, step, lineage: 0, version: step, cursor: 0, ledger, extra: {} };
  await writeCheckpoint(dir, state, {}, async (temporary) => {
    die('begun');
    writeFileSync(join(modelFolder(temporary), 'config.json'), '{"model_type":"gpt_oss"}');
    writeFileSync(join(modelFolder(temporary), 'model.safetensors'), weights.subarray(0, 9000));
    die('half');
    writeFileSync(join(modelFolder(temporary), 'model.safetensors'), weights);
    writeFileSync(join(temporary, 'optimizer.safetensors'), weights);
    die('written');
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [dir, killAt] = process.argv.slice(2);
  await writeSmallCheckpoint(dir!, 2, killAt);
}
