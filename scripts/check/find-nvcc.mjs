// Where nvcc is, if anywhere.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

/** As PATH, CUDA_HOME or the usual place has it; undefined. */
export function findNvcc() {
  if (spawnSync('nvcc', ['--version'], { timeout: 10_000 }).status === 0) return 'nvcc';
  const places = [process.env.CUDA_HOME && path.join(process.env.CUDA_HOME, 'bin/nvcc'), '/usr/local/cuda/bin/nvcc'];
  return places.find((place) => place && existsSync(place));
}
