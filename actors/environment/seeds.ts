/** Task seeds. The top bit tells validation from training, so the two sets are disjoint by construction. */
import { threefry } from './random.ts';

const TRAIN = 0x7472696e; // 'trin'
const VALIDATION = 0x76616c64; // 'vald'
const TOP = 0x80000000;

function derive(domain: number, key: number, index: number): number {
  const block = new Uint32Array(2);
  threefry(domain, key >>> 0, index >>> 0, Math.floor(index / 2 ** 32) >>> 0, block);
  return block[0]!;
}

/** Seed of training task `index` of a run: uint32 with the top bit clear. */
export function trainingTask(runSeed: number, index: number): number {
  return (derive(TRAIN, runSeed, index) & ~TOP) >>> 0;
}

/** Seed of validation task `index`: uint32 with the top bit set; the same set for every run. */
export function validationTask(index: number): number {
  return (derive(VALIDATION, 0, index) | TOP) >>> 0;
}

export function isValidationTask(seed: number): boolean {
  return seed >>> 31 === 1;
}
