// The other process of flip.ts: joins a store, waits for a version, pins it (or decodes one token with it), and says how long after its flip.
import { Engine, type StoreAddress, WeightStore } from '../../kernels/index.ts';

export type FlipRequest = { kind: 'join'; address: StoreAddress } | { kind: 'sleep' | 'spin' | 'decode'; after: number } | { kind: 'read' };

/** Microseconds. `pinned`, `decoded`: since the flip; `step`: one decode step on a version that stood already. */
export interface FlipReport {
  kind: 'report' | 'waiting';
  pinned: number;
  decoded: number;
  step: number;
}

let store: WeightStore;
let engine: Engine;
let sequence: number;
const send = (report: Partial<FlipReport>): unknown => process.send?.({ kind: 'report', pinned: 0, decoded: 0, step: 0, ...report });
const clock = (): bigint => process.hrtime.bigint();
const sinceFlip = (): number => Number(clock() - store.segment.publishedAt()!) / 1000;

/** Touches every byte, as a first full pass over the weights does. */
function readAll(data: Uint8Array): number {
  const words = new Int32Array(data.buffer, data.byteOffset, Math.floor(data.byteLength / 4));
  let mix = 0;
  for (let i = 0; i < words.length; i++) mix ^= words[i]!;
  return mix;
}

async function decode(): Promise<number> {
  const { versions } = await engine.generate(sequence, {
    tokens: Int32Array.of(1),
    maxNewTokens: 1,
    stopTokens: [],
    temperature: 0,
    key: [0, 0, 0, 0],
  });
  return versions[0]!;
}

async function answer(request: FlipRequest): Promise<unknown> {
  if (request.kind === 'join') {
    store = WeightStore.open(request.address);
    engine = new Engine({ store, threads: 1, maxSequences: 1, maxSequenceTokens: 64 });
    return send({});
  }
  if (request.kind === 'read') {
    const pin = store.pin();
    const { data } = pin;
    const start = clock();
    readAll(data);
    const pinned = Number(clock() - start) / 1000;
    pin.release();
    return send({ pinned });
  }
  if (request.kind === 'decode') sequence = await engine.openSequence();
  let pinned: number;
  if (request.kind === 'spin') {
    send({ kind: 'waiting' });
    // The message has to leave before the loop blocks.
    await new Promise((done) => setImmediate(done));
    let pin = store.pin();
    while (pin.version.version === request.after) {
      pin.release();
      pin = store.pin();
    }
    pinned = sinceFlip();
    pin.release();
  } else {
    const next = store.waitForVersion(request.after, { timeoutMs: 10_000 });
    send({ kind: 'waiting' });
    await next;
    const pin = store.pin();
    pinned = sinceFlip();
    pin.release();
  }
  if (request.kind !== 'decode') return send({ pinned });
  if ((await decode()) !== request.after + 1) throw new Error('the first decode step was on an old version');
  const decoded = sinceFlip();
  const start = clock();
  await decode();
  const step = Number(clock() - start) / 1000;
  engine.closeSequence(sequence);
  return send({ pinned, decoded, step });
}

process.on('message', (request: FlipRequest) => {
  answer(request).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
process.on('disconnect', () => process.exit(0));
