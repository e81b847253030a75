// The emulated CUDA backend for tests: built once with the C++ compiler (kept in build-emulation/), opened like any backend library.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** The paths of the library (no programs named), or of test programs. */
export async function emulation(...programs: string[]): Promise<string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [join(process.cwd(), 'scripts/build-emulation.mjs'), ...programs], {
    timeout: 850_000,
  });
  return stdout.trim().split('\n');
}

/** The emulated library, or the one that SINKFLEX_TEST_BACKEND names. */
export async function emulatedBackend(): Promise<string> {
  return process.env.SINKFLEX_TEST_BACKEND ?? (await emulation())[0]!;
}

/** bf16 bits of values, rounded to nearest, ties to even. */
export function toBf16(x: Float32Array): Uint16Array {
  return Uint16Array.from(new Uint32Array(x.buffer, x.byteOffset, x.length), (b) => (b + 0x7fff + ((b >>> 16) & 1)) >>> 16);
}
export function fromBf16(x: Uint16Array): Float32Array {
  return new Float32Array(Uint32Array.from(x, (b) => b << 16).buffer);
}
