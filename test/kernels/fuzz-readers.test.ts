// Readers of what others wrote, under seeded mutation of a small corpus: safetensors files, config.json, and experts in MXFP4. Whatever the
// bytes, the answer is a result that its own numbers bound or a typed error, soon, and no memory beyond the file's size. An input that reaches
// code of the readers which none before it reached joins those that are mutated.
// SINKFLEX_FUZZ_SECONDS (default 1) is the time for each reader, SINKFLEX_FUZZ_SEED the start; a finding prints the bytes to keep in
// fuzz-corpus/. SINKFLEX_FUZZ_KEEP names a folder for the inputs that reached new code.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import type { LayoutTensor } from '../../kernels/tensor-layout.ts';
import { ReaderCoverage } from './reader-coverage.ts';

const coverage = new ReaderCoverage(['checkpoint.js', 'model-config.js', 'mxfp4.js', 'safetensors.js', 'tensor-layout.js']);
const { Checkpoint } = await import('../../kernels/checkpoint.ts');
const { isSinkflexError } = await import('../../kernels/errors.ts');
const { parseModelConfig } = await import('../../kernels/model-config.ts');
const { widenMxfp4 } = await import('../../kernels/mxfp4.ts');
const { SafetensorsFile } = await import('../../kernels/safetensors.ts');
const { SlotTensors } = await import('../../kernels/slot-tensors.ts');
const { storedBytes, tensorLayout } = await import('../../kernels/tensor-layout.ts');
const { tinyConfig } = await import('./engine-support.ts');

const seconds = Number(process.env.SINKFLEX_FUZZ_SECONDS ?? 1);
const firstSeed = Number(process.env.SINKFLEX_FUZZ_SEED ?? 1);
// Three readers, and room for a slow machine.
t.setTimeout((3 * seconds + 60) * 1000);
/** An input that takes more processor time than this is a finding: what else runs on the machine does not count. */
const slowMs = 1000;
const spentMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

const corpusFolder = ['./fuzz-corpus/', '../../../test/kernels/fuzz-corpus/']
  .map((path) => fileURLToPath(new URL(path, import.meta.url)))
  .find((path) => {
    try {
      return readdirSync(path).length > 0;
    } catch {
      return false;
    }
  })!;
const corpus = (extension: string): Uint8Array[] =>
  readdirSync(corpusFolder)
    .filter((name) => extname(name) === extension)
    .sort()
    .map((name) => readFileSync(join(corpusFolder, name)));

/** splitmix32 */
function generator(seed: number): (below: number) => number {
  let state = seed | 0;
  return (below) => {
    state = (state + 0x9e3779b9) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) % below;
  };
}

// biome-ignore format: a list
const pieces = ['0', '-1', '1', '4294967296', '9007199254740991', '9007199254740993', '1e308', '1e999', '-0', '0.5', '2147483647', 'null', 'true', '""', '[]', '{}', '"__proto__"', '"F32"', '"U8"', '"\\u0000"', '[[[[', ']]]]', ',', ':', '{"a":', '"toString"', '18446744073709551615'];

/** Bytes flipped, taken out, doubled, spliced from another input; numbers and words of JSON put in the place of others. */
function mutate(from: Uint8Array, others: readonly Uint8Array[], random: (below: number) => number): Uint8Array {
  let bytes = Buffer.from(from);
  for (let times = 1 + random(4); times > 0; times--) {
    const at = random(bytes.length + 1);
    const length = Math.min(bytes.length - at, 1 + random(16));
    switch (random(8)) {
      case 0:
        if (at < bytes.length) bytes[at] = bytes[at]! ^ (1 << random(8));
        break;
      case 1:
        if (at < bytes.length) bytes[at] = random(256);
        break;
      case 2:
        bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + length)]);
        break;
      case 3:
        bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at, at + length), bytes.subarray(at)]);
        break;
      case 4:
        bytes = bytes.subarray(0, at);
        break;
      case 5: {
        const other = others[random(others.length)]!;
        const begin = random(other.length + 1);
        bytes = Buffer.concat([bytes.subarray(0, at), other.subarray(begin, begin + 1 + random(64)), bytes.subarray(at)]);
        break;
      }
      default: {
        // A number or word of the text, from where we stand.
        const text = bytes.toString('latin1');
        const found = /-?\d+(?:\.\d+)?|"[^"]{0,40}"|true|false|null/g;
        found.lastIndex = at;
        const match = found.exec(text);
        if (match === null) break;
        const piece = pieces[random(pieces.length)]!;
        bytes = Buffer.from(text.slice(0, match.index) + piece + text.slice(match.index + match[0].length), 'latin1');
      }
    }
  }
  return new Uint8Array(bytes);
}

/** The length word of a safetensors file made right again, as often as not: behind it lies the rest of the reader. */
function withLength(bytes: Uint8Array, dataBytes: number, random: (below: number) => number): Uint8Array {
  if (bytes.length < 8 || random(2) === 0) return bytes;
  const fixed = Buffer.from(bytes);
  fixed.writeBigUInt64LE(BigInt(Math.max(0, bytes.length - 8 - dataBytes)));
  return new Uint8Array(fixed);
}

function keep(bytes: Uint8Array, extension: string): void {
  const folder = process.env.SINKFLEX_FUZZ_KEEP;
  if (folder === undefined) return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, createHash('sha256').update(bytes).digest('hex').slice(0, 16) + extension), bytes);
}

async function fuzz(
  t: Test,
  corpus: readonly Uint8Array[],
  extension: string,
  one: (bytes: Uint8Array) => void,
  shape = (b: Uint8Array, _: (n: number) => number) => b,
): Promise<void> {
  let runs = 0;
  let accepted = 0;
  const codes = new Map<string, number>();
  const attempt = (bytes: Uint8Array, label: string): void => {
    const before = spentMs();
    const fail = (what: string): never => {
      throw new Error(`${label}: ${what}; bytes ${Buffer.from(bytes).toString('base64')}`);
    };
    try {
      one(bytes);
      accepted++;
    } catch (e) {
      if (!isSinkflexError(e)) fail(`not a typed error: ${(e as Error).stack}`);
      else if (e.message.length > 5000) fail(`a message of ${e.message.length} characters`);
      else codes.set(e.code, (codes.get(e.code) ?? 0) + 1);
    }
    const spent = spentMs() - before;
    if (spent > slowMs) fail(`took ${spent} ms of processor time`);
    runs++;
  };
  for (const [i, bytes] of corpus.entries()) attempt(bytes, `corpus ${i}`);
  coverage.advanced(true);
  const inputs = [...corpus];
  const deadline = performance.now() + 1000 * seconds;
  for (let seed = firstSeed; seed < firstSeed + 2 || performance.now() < deadline; seed++) {
    const random = generator(seed);
    const tried: Uint8Array[] = [];
    for (let round = 0; round < 100; round++) {
      const bytes = shape(mutate(inputs[random(inputs.length)]!, inputs, random), random);
      if (bytes.length > 1 << 17) continue;
      attempt(bytes, `seed ${seed}, round ${round}`);
      tried.push(bytes);
    }
    // Counters cost more than an input does: they are looked at for many at once, and one by one where there is something to find.
    if (coverage.advanced(false))
      for (const bytes of tried) {
        attempt(bytes, `seed ${seed}, again`);
        if (!coverage.advanced(true)) continue;
        inputs.push(bytes);
        keep(bytes, extension);
      }
    await new Promise((done) => setImmediate(done));
  }
  t.ok(
    runs > 100,
    `${runs} inputs, ${inputs.length - corpus.length} reached new code, ${coverage.functions} functions have run, ${accepted} accepted; ${[...codes].map(([code, n]) => `${code} ${n}`).join(', ')}`,
  );
}

// A file an input: in memory where there is such a place.
const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'sinkflex-fuzz-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** A file, opened as the loader does; every tensor that it admits is read. */
function readSafetensors(bytes: Uint8Array): void {
  const path = join(folder, 'model.safetensors');
  writeFileSync(path, bytes);
  const file = new SafetensorsFile(path);
  try {
    let admitted = 0;
    for (const tensor of file.header.tensors.values()) {
      admitted += tensor.end - tensor.begin;
      const count = tensor.shape.reduce((product, size) => product * size, 1);
      file.readBytes(tensor, 0, tensor.end - tensor.begin);
      file.read(tensor, new Float32Array(count));
    }
    if (admitted + file.header.dataStart !== bytes.length) throw new Error('the tensors do not fill the file');
  } finally {
    file.close();
  }
}

t.test('safetensors', (t) => {
  const dataBytes = [32, 8, 0];
  return fuzz(t, corpus('.safetensors'), '.safetensors', readSafetensors, (b, random) => withLength(b, dataBytes[random(3)]!, random));
});

t.test('config.json', (t) =>
  fuzz(t, corpus('.json'), '.json', (bytes) => {
    let json: unknown;
    try {
      json = JSON.parse(Buffer.from(bytes).toString('utf8'));
    } catch {
      return;
    }
    const layout = tensorLayout(parseModelConfig(json));
    if (!Number.isFinite(layout.totalBytes) || layout.totalBytes <= 0) throw new Error(`a layout of ${layout.totalBytes} bytes`);
  }),
);

/** A slot that takes such experts as they are shows the same values; it has no place for others. */
function keptAsStored(folder: string, tensor: LayoutTensor, values: Float32Array): void {
  const checkpoint = Checkpoint.open(folder, [tensor]);
  try {
    const image = new Uint8Array(storedBytes(tensor));
    const layout = { ...tensorLayout(tinyConfig()), dataStart: 0, tensors: [tensor] };
    const slot = new SlotTensors(layout, (offset, bytes) => image.subarray(offset, offset + bytes));
    const filled = [...checkpoint.fill(slot, tensor)].reduce((a, b) => a + b, 0);
    if (filled !== image.length) throw new Error(`${filled} of ${image.length} bytes were filled`);
    if (slot.read(tensor).some((x, i) => !Object.is(x, values[i]))) throw new Error('kept as they are they have other values');
  } finally {
    checkpoint.close();
  }
}

t.test('experts in MXFP4', (t) => {
  const place = { dtype: 'F32', offset: 0, gradientOffset: 0, decay: true } as const;
  const tensor = { name: 'experts.w', shape: [2, 64, 4], count: 512, ...place };
  const mxfp4 = readFileSync(join(corpusFolder, 'mxfp4.safetensors'));
  return fuzz(
    t,
    [mxfp4],
    '.safetensors',
    (bytes) => {
      writeFileSync(join(folder, 'model.safetensors'), bytes);
      const checkpoint = Checkpoint.open(folder, [tensor]);
      try {
        const to = new Float32Array(tensor.count).fill(-7);
        checkpoint.read(tensor, to);
        // Only a scale of 255 makes values that are no numbers, and every value was written.
        const legal = new Set([0, 0.5, 1, 1.5, 2, 3, 4, 6]);
        for (const x of to) {
          if (Number.isNaN(x) || !Number.isFinite(x) || x === 0) continue;
          const scale = 2 ** Math.floor(Math.log2(Math.abs(x)));
          if (![0.25, 0.5, 1, 2, 4].some((s) => legal.has(Math.abs(x) / (scale / s)))) throw new Error(`${x} is no MXFP4 value`);
        }
        keptAsStored(folder, { ...tensor, dtype: 'MXFP4' }, to);
      } finally {
        checkpoint.close();
      }
    },
    (b, random) => withLength(b, 272, random),
  );
});

t.test('every MXFP4 byte and scale', (t) => {
  for (let scale = 0; scale < 256; scale++) {
    const to = new Float32Array(32);
    for (let byte = 0; byte < 256; byte += 16) {
      widenMxfp4(
        Uint8Array.from({ length: 16 }, (_, i) => byte + i),
        Uint8Array.of(scale),
        1,
        32,
        to,
      );
      if (scale === 255) t.ok(to.every(Number.isNaN));
      else if (scale < 252 && !to.every(Number.isFinite)) t.fail(`scale ${scale} byte ${byte}`);
    }
  }
  t.end();
});
