// The other process of flip.ts: joins a segment, waits for a version, reads it pinned, and says how long ago its flip began.
import { type Pin, type SegmentAddress, VersionedSegment } from '../../kernels/index.ts';

export type FlipRequest = { kind: 'join'; address: SegmentAddress } | { kind: 'sleep' | 'spin'; after: number } | { kind: 'read' };
export interface FlipReport {
  kind: 'report' | 'waiting';
  microseconds: number;
}

let segment: VersionedSegment;
const send = (report: FlipReport): unknown => process.send?.(report);
const clock = (): bigint => process.hrtime.bigint();

/** The stamp that the writer put into the slot, against now (one clock for all processes of a machine). */
function age(pin: Pin): number {
  const stamp = Buffer.from(pin.data.buffer, pin.data.byteOffset, 8).readBigUInt64LE();
  return Number(clock() - stamp) / 1000;
}

/** Touches every byte, as a first full pass over the weights does. */
function readAll(data: Uint8Array): number {
  const words = new Float64Array(data.buffer, data.byteOffset, Math.floor(data.byteLength / 8));
  let sum = 0;
  for (let i = 0; i < words.length; i++) sum += words[i]!;
  return sum;
}

process.on('message', async (request: FlipRequest) => {
  if (request.kind === 'join') {
    segment = VersionedSegment.open(request.address);
    const pin = segment.pin();
    readAll(pin.data);
    pin.release();
    return send({ kind: 'report', microseconds: 0 });
  }
  if (request.kind === 'read') {
    const pin = segment.pin();
    const start = clock();
    readAll(pin.data);
    const microseconds = Number(clock() - start) / 1000;
    pin.release();
    return send({ kind: 'report', microseconds });
  }
  const seen = segment.current();
  if (request.kind === 'sleep') {
    const next = segment.waitForVersion(request.after, { timeoutMs: 10_000 });
    send({ kind: 'waiting', microseconds: 0 });
    await next;
  } else {
    send({ kind: 'waiting', microseconds: 0 });
    // The message has to leave before the loop blocks.
    await new Promise((done) => setImmediate(done));
    while (segment.current()?.version === seen?.version) {
      // awake, as between two decode steps
    }
  }
  const pin = segment.pin();
  const microseconds = age(pin);
  pin.release();
  send({ kind: 'report', microseconds });
});
process.on('disconnect', () => process.exit(0));
