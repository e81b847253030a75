// Suite `weights`: what a version of bf16 weights costs on its way to another host, as a change of the version before and as a whole, for learning
// rates of the optimiser. The weights are normal with deviation 0.02, the updates as AdamW makes them: about the learning rate each.
import { applyDelta, encodeDelta, type SegmentAddress, VersionedSegment } from '../../kernels/index.ts';
import { defineActor, ready, SegmentReplica, SegmentSource, spawn } from '../../runtime/index.ts';
import { withHosts } from './links/hosts.ts';
import { judged, type Suite, type SuiteContext } from './rows.ts';
import { median, round } from './runtime/turns.ts';

const SUITE = 'weights';
const RATES = ['1e-6', '1e-5', '1e-4'] as const;
const DEVIATION = 0.02;
/** Of one pattern, which is repeated. */
const PATTERN = 2 ** 20;
const THREADS = 2;
/** Bars, for the smallest rate: percent of the whole, and GB/s. */
const BYTES_BAR = 5;
const SPEED_BAR = 5;

/** Standard normal numbers from a seed. */
function normals(seed: number, count: number): Float32Array {
  let state = seed;
  const uniform = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  return new Float32Array(count).map(() => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

/** Rounded to nearest, ties to even. */
function toBf16(values: Float32Array): Uint8Array {
  const bits = new Uint32Array(values.buffer);
  const rounded = new Uint16Array(bits.length).map((_, i) => (bits[i]! + 0x7fff + ((bits[i]! >>> 16) & 1)) >>> 16);
  return new Uint8Array(rounded.buffer);
}

/** Weights, and what they are after some steps of that rate. */
function versions(rate: number, steps: number): Uint8Array[] {
  const weights = normals(1, PATTERN).map((z) => DEVIATION * z);
  return Array.from({ length: steps + 1 }, (_, step) => {
    if (step > 0) for (const [i, z] of normals(step + 1, PATTERN).entries()) weights[i]! -= rate * z;
    return toBf16(weights);
  });
}

const repeated = (pattern: Uint8Array, bytes: number): Uint8Array => {
  const all = new Uint8Array(bytes);
  for (let at = 0; at < bytes; at += pattern.length) all.set(pattern, at);
  return all;
};

async function gigabytesPerSecond(bytes: number, times: number, work: () => Promise<unknown>): Promise<number> {
  const rates: number[] = [];
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    await work();
    rates.push(bytes / 1e6 / (performance.now() - start));
  }
  return median(rates);
}

/** Rows weights.bytes, .scan and .patch of one rate. */
async function codec(context: SuiteContext, rate: (typeof RATES)[number]): Promise<void> {
  const bytes = (context.quick ? 64 : 256) * 2 ** 20;
  const [before, now] = versions(Number(rate), 1).map((pattern) => repeated(pattern, bytes));
  const into = new Uint8Array(bytes).fill(1);
  const delta = await encodeDelta(before!, now!, { elementBytes: 2, threads: THREADS });
  await applyDelta(delta, before!, into, { threads: THREADS });
  const exact = Buffer.compare(into, now!) === 0 ? 'bit for bit' : 'DIFFERENT';
  if (exact === 'DIFFERENT') throw new Error('the delta does not make the version that it was made from');
  const scan = await gigabytesPerSecond(bytes, 7, () => encodeDelta(before!, now!, { elementBytes: 2, threads: THREADS }));
  const patch = await gigabytesPerSecond(bytes, 7, () => applyDelta(delta, before!, into, { threads: THREADS }));
  const first = rate === RATES[0];
  const details = { delta_bytes: delta.length, full_bytes: bytes, exact };
  const share = { suite: SUITE, row: `weights.bytes.${rate}`, unit: '% of full', ours: round((100 * delta.length) / bytes), details };
  context.report(first ? judged(share, { most: BYTES_BAR }) : share);
  for (const [name, speed] of Object.entries({ scan, patch })) {
    const row = { suite: SUITE, row: `weights.${name}.${rate}`, unit: 'GB/s', ours: round(speed), details: { threads: THREADS } };
    context.report(first ? judged(row, { least: SPEED_BAR }) : row);
  }
}

/** The trainer's side: has a segment, publishes the versions of a rate one after the other. */
class PublisherActor {
  readonly #segment: VersionedSegment;
  readonly #versions: Uint8Array[];
  #next = 0;
  constructor(bytes: number, rate: number, steps: number) {
    this.#segment = VersionedSegment.create({ slotBytes: bytes });
    this.#versions = versions(rate, steps);
  }
  address(): SegmentAddress {
    return this.#segment.address;
  }
  async publish(): Promise<number> {
    const writing = await this.#segment.beginWrite();
    const pattern = this.#versions[this.#next]!;
    for (let at = 0; at < writing.data.length; at += pattern.length) writing.data.set(pattern, at);
    writing.publish({ lineage: 0, version: this.#next });
    return this.#next++;
  }
}
export const Publisher = defineActor(import.meta.url, 'Publisher', PublisherActor);

/** Row weights.replicate: from the flip here to the flip there, on another host; the first version is a whole one. */
async function replicate(context: SuiteContext, rate: (typeof RATES)[number]): Promise<void> {
  const bytes = (context.quick ? 64 : 256) * 2 ** 20;
  const steps = 5;
  await withHosts(2, { tls: false, storeBytes: 2 ** 30 }, async ({ nodes }) => {
    const on = (node: number) => ({ strategy: { node: nodes[node]! } });
    const publisher = spawn(Publisher, { args: [bytes, Number(rate), steps], ...on(0) });
    await ready(publisher, { timeoutMs: 60_000 });
    const source = spawn(SegmentSource, { args: [await publisher.address(), { elementBytes: 2 }], maxConcurrency: 100, ...on(0) });
    const replica = spawn(SegmentReplica, { args: [{ source }], maxConcurrency: 100, ...on(1) });
    const times: number[] = [];
    const sent: number[] = [];
    for (let i = 0; i <= steps; i++) {
      const before = (await replica.status()).bytes;
      const version = await publisher.publish();
      const start = performance.now();
      await replica.reached({ lineage: 0, version }, 60_000);
      times.push(performance.now() - start);
      sent.push((await replica.status()).bytes - before);
    }
    const [full, ...changes] = times;
    const own = median(changes);
    context.report({
      suite: SUITE,
      row: `weights.replicate.${rate}`,
      unit: 'ms',
      ours: round(own),
      peer: round(full!),
      ratio: round(full! / own),
      details: { peer: 'the whole version', full_bytes: sent[0]!, delta_bytes: Math.round(median(sent.slice(1))), slot_bytes: bytes },
    });
  });
}

export const weightsSuite: Suite = {
  ...Object.fromEntries(RATES.map((rate) => [`weights.codec.${rate}`, (context: SuiteContext) => codec(context, rate)])),
  ...Object.fromEntries(RATES.map((rate) => [`weights.replicate.${rate}`, (context: SuiteContext) => replicate(context, rate)])),
};
