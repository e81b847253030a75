// MXFP4 experts against their definition, and files that lack a part of them.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createStore, file, type Part, temporaryFolder } from './engine-support.ts';

type Json = Record<string, unknown>;

t.test('experts in MXFP4 are read as the values that their codes name, and refused when a part is not as it must be', (t) => {
  const dir = temporaryFolder(t);
  const [E, h, I] = [2, 32, 64];
  const store = createStore({ hidden_size: h, intermediate_size: I, num_local_experts: E });
  store.saveFolder(dir);
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Json;
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...config, quantization_config: { quant_method: 'mxfp4' } }));
  // E2M1 by its definition: sign, exponent (bias 1), one bit of mantissa; exponent 0 is subnormal.
  const value = (code: number): number => {
    const [sign, exponent, mantissa] = [code & 8 ? -1 : 1, (code >> 1) & 3, code & 1];
    return sign * (exponent === 0 ? mantissa / 2 : (1 + mantissa / 2) * 2 ** (exponent - 1));
  };
  const byte = (i: number, salt: number): number => Math.imul(i + salt, 2654435761) >>> 24;
  const expected = new Map<string, (e: number, into: number, out: number) => number>();
  const pin = store.pin();
  const parts: Part[] = [];
  for (const [name, { shape, data }] of store.tensors(pin)) {
    if (shape.length !== 3) {
      parts.push({ name, dtype: 'F32', shape, data: new Uint8Array(data.slice().buffer) });
      continue;
    }
    const [, into, out] = shape as [number, number, number];
    const salt = name.length + Number(/layers\.(\d+)/.exec(name)![1]) * 1000;
    const blocks = Uint8Array.from({ length: E * out * (into / 2) }, (_, i) => byte(i, salt));
    const scales = Uint8Array.from({ length: E * out * (into / 32) }, (_, i) => 120 + (byte(i, salt + 7) % 14));
    parts.push({ name: `${name}_blocks`, dtype: 'U8', shape: [E, out, into / 32, 16], data: blocks });
    parts.push({ name: `${name}_scales`, dtype: 'U8', shape: [E, out, into / 32], data: scales });
    expected.set(name, (e, i, o) => {
      const row = e * out + o;
      const pair = blocks[(row * into + i) >> 1]!;
      return value(i % 2 === 0 ? pair & 15 : pair >> 4) * 2 ** (scales[row * (into / 32) + Math.floor(i / 32)]! - 127);
    });
  }
  pin.release();
  const path = join(dir, 'model.safetensors');
  writeFileSync(path, file(parts));
  store.loadFolder(dir);
  const read = store.pin();
  for (const [name, { shape, data }] of store.tensors(read)) {
    const wanted = expected.get(name);
    if (wanted === undefined) continue;
    const [, into, out] = shape as [number, number, number];
    const all = Float32Array.from({ length: E * into * out }, (_, at) =>
      wanted(Math.floor(at / (into * out)), Math.floor(at / out) % into, at % out),
    );
    t.ok(Buffer.compare(Buffer.from(data.buffer, data.byteOffset, data.byteLength), Buffer.from(all.buffer)) === 0, name);
  }
  read.release();
  const [blocks, scales] = [
    parts.findIndex(({ name }) => name.endsWith('_blocks')),
    parts.findIndex(({ name }) => name.endsWith('_scales')),
  ];
  const without = (at: number, replacement: Part[] = []): Part[] => [...parts.slice(0, at), ...replacement, ...parts.slice(at + 1)];
  for (const [damaged, message] of [
    [without(scales), /_scales is missing/],
    [without(blocks), /gate_up_proj is missing/],
    [without(scales, [{ ...parts[scales]!, shape: [E, 2 * I * (h / 32)] }]), /_scales has shape/],
    [without(blocks, [{ ...parts[blocks]!, dtype: 'I8' }]), /_blocks is I8; U8 are read/],
  ] as const) {
    writeFileSync(path, file(damaged));
    t.throws(() => store.loadFolder(dir), { code: 'SINKFLEX_CHECKPOINT_TENSOR', message });
  }
  t.match(store.current(), { version: 1 }, 'what was refused published nothing');
  store.close();
  t.end();
});
