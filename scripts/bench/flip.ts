// Rows pipeline.flip.*: from the start of a publish to the first pinned read of the new version in another process. The reader has joined
// and its pages are populated. Measured twice: a reader that sleeps until it is woken (the row), and one that is awake, as a decode loop is.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { freemem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { median } from '../../actors/index.ts';
import { VersionedSegment } from '../../kernels/index.ts';
import type { FlipReport, FlipRequest } from './flip-reader.ts';
import type { SuiteContext } from './rows.ts';

const READER = fileURLToPath(new URL('./flip-reader.js', import.meta.url));
/** The bar that the project set itself, in microseconds. */
export const FLIP_BAR_US = 200;

export async function flip(context: SuiteContext, o: { row: string; bytes: number }): Promise<void> {
  const slots = 3;
  if (freemem() < (slots + 1) * o.bytes) {
    context.report({ suite: 'pipeline', row: o.row, skipped: `needs ${Math.round(((slots + 1) * o.bytes) / 2 ** 20)} MiB of free memory` });
    return;
  }
  const segment = VersionedSegment.create({ slotBytes: o.bytes, slots });
  const reader = fork(READER, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], serialization: 'advanced' });
  try {
    let version = 0;
    // Every slot is written once in full, so that publishing later measures the flip and not the first touch of pages.
    for (let i = 0; i < slots; i++) {
      const writing = await segment.beginWrite({ timeoutMs: 10_000 });
      writing.data.fill(i + 1);
      writing.publish({ lineage: 0, version: version++ });
    }
    await ask(reader, { kind: 'join', address: segment.address });
    const publish = async (request: FlipRequest): Promise<FlipReport> => {
      const answer = ask(reader, request);
      await once(reader, 'message'); // the reader says that it waits
      const writing = await segment.beginWrite({ timeoutMs: 10_000 });
      // Its place in the slot is the message: the reader finds the time of the flip in what it reads.
      Buffer.from(writing.data.buffer, writing.data.byteOffset, 8).writeBigUInt64LE(process.hrtime.bigint());
      writing.publish({ lineage: 0, version: version++ });
      return answer;
    };
    const rounds = context.quick ? 20 : 200;
    const asleep: number[] = [];
    const awake: number[] = [];
    // Warm-up: every slot has been mapped and read once by the reader.
    for (let i = 0; i < 2 * slots; i++) await publish({ kind: 'sleep', after: version - 1 });
    for (let i = 0; i < rounds; i++) asleep.push((await publish({ kind: 'sleep', after: version - 1 })).microseconds);
    for (let i = 0; i < rounds; i++) awake.push((await publish({ kind: 'spin', after: version - 1 })).microseconds);
    const full = (await ask(reader, { kind: 'read' })).microseconds;
    context.report({
      suite: 'pipeline',
      row: o.row,
      unit: 'us',
      ours: median(asleep),
      details: {
        awake_us: median(awake),
        p99_us: quantile(asleep, 0.99),
        awake_p99_us: quantile(awake, 0.99),
        full_read_ms: full / 1000,
        bytes: o.bytes,
        rounds,
        bar_us: FLIP_BAR_US,
      },
    });
  } finally {
    reader.kill('SIGKILL');
    segment.close();
  }
}

type Reader = ReturnType<typeof fork>;

async function ask(reader: Reader, request: FlipRequest): Promise<FlipReport> {
  return new Promise((done, failed) => {
    const listener = (report: FlipReport) => {
      if (report.kind !== 'report') return;
      reader.off('message', listener);
      done(report);
    };
    reader.on('message', listener);
    reader.once('exit', () => failed(new Error('the reader process ended')));
    reader.send(request);
  });
}

const quantile = (values: readonly number[], q: number): number =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))]!;
