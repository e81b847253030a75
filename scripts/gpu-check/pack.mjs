// Puts a folder together that checks and measures the attention kernels on a machine with a GPU and nothing else: neither Node nor a network.
// `node scripts/gpu-check/pack.mjs FOLDER [LIBRARY]` (default: what npm run build:cuda made); then `./run.sh` there.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(path.dirname(here));
const [folder, library = path.join(root, 'build-cuda/libsinkflex-cuda.so')] = process.argv.slice(2);
const fixtures = path.join(process.env.SINKFLEX_FIXTURES ?? path.join(root, '../shared/fixtures'), 'attention');
if (!folder || !existsSync(library) || !existsSync(fixtures)) {
  console.error(`usage: pack.mjs FOLDER [LIBRARY]; needs the library (${library}) and the golden cases (${fixtures})`);
  process.exit(2);
}

/** The tensors of a safetensors file, as bytes. */
function tensorsOf(file) {
  const bytes = readFileSync(file);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + length));
  return (name) => {
    const [from, to] = header[name].data_offsets;
    return bytes.subarray(8 + length + from, 8 + length + to);
  };
}
const floats = (bytes) => new Float32Array(Uint8Array.from(bytes).buffer);

/** A case: a line of numbers, then its arrays one after another, as driver.cpp reads them. */
function pack(c) {
  const get = tensorsOf(path.join(fixtures, c.file));
  const { n, heads, kv_heads, head_dim, window, prefix, scale, cu_seqlens } = c;
  const arrays = ['q', 'k', 'v', 'sink', 'dout', 'out', 'lse_sink', 'dq', 'dk', 'dv', 'dsink'].map(get);
  if (c.has_dlse) {
    // The golden ones are gradients of the sum over keys alone, without the sink's share of the row.
    const [sink, lse] = [floats(get('sink')), floats(get('lse_sink'))];
    const dlse = floats(get('dlse')).map((d, i) => d / (1 - Math.exp(sink[i % heads] - lse[i])));
    arrays.push(Buffer.from(dlse.buffer));
  }
  const line = [c.file.replace(/\W.*/, ''), n, heads, kv_heads, head_dim, window, prefix, scale, cu_seqlens.length, c.has_dlse ? 1 : 0];
  return [Buffer.from(`${line.join(' ')}\n`), Buffer.from(Int32Array.from(cu_seqlens).buffer), ...arrays];
}

mkdirSync(folder, { recursive: true });
const { cases } = JSON.parse(readFileSync(path.join(fixtures, 'index.json'), 'utf8'));
writeFileSync(path.join(folder, 'cases.bin'), Buffer.concat(cases.flatMap(pack)));
copyFileSync(library, path.join(folder, 'libsinkflex-cuda.so'));
for (const name of ['driver.cpp', 'run.sh', 'summary.py', 'torch_table.py']) copyFileSync(path.join(here, name), path.join(folder, name));
copyFileSync(path.join(root, 'kernels/backend.h'), path.join(folder, 'backend.h'));
console.log(`${folder}: ${cases.length} cases; copy it to the machine with the GPU and start ./run.sh there`);
