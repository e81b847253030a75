// One version of a segment on its way to another host: a header, then its regions in order, each as what brings the version that the other host
// has to this one (kernels/delta.ts), with checksums.
import { availableParallelism } from 'node:os';
import { applyDelta, encodeDelta, type Slot } from '../../kernels/host.ts';

/** What is encoded, sent and written at once. */
export const REGION_BYTES = 4 * 2 ** 20;
/** A region has four pieces that threads can share. */
const threads = Math.min(4, availableParallelism());

export interface VersionName {
  lineage: number;
  version: number;
}

export interface UpdateHeader extends VersionName {
  slotBytes: number;
  /** What the regions are relative to; absent: they are whole. */
  base?: VersionName;
}

export const sameVersion = (a: VersionName | undefined, b: VersionName | undefined): boolean =>
  a !== undefined && b !== undefined && a.lineage === b.lineage && a.version === b.version;

export const isNewer = (a: VersionName, b: VersionName | undefined): boolean =>
  b === undefined || a.lineage > b.lineage || (a.lineage === b.lineage && a.version > b.version);

const regionAt = (slot: Slot, at: number, bytes = slot.bytes): Uint8Array => slot.view(at, Math.min(REGION_BYTES, bytes - at));

/** Of the first `bytes` of a slot. The next one is encoded while the last one is taken. */
export async function* regionsOf(next: Slot, base: Slot | undefined, elementBytes: 2 | 4, bytes = next.bytes): AsyncGenerator<Uint8Array> {
  const encoded = (at: number): Promise<Uint8Array> | undefined => {
    if (at >= bytes) return undefined;
    const region = encodeDelta(base && regionAt(base, at, bytes), regionAt(next, at, bytes), { elementBytes, threads });
    region.catch(() => {}); // it is awaited below, unless nobody wants it any more
    return region;
  };
  let ahead = encoded(0);
  try {
    for (let at = REGION_BYTES; ahead !== undefined; at += REGION_BYTES) {
      const region = await ahead;
      ahead = encoded(at);
      yield region;
    }
  } finally {
    // What it reads must stay until it has ended.
    await ahead?.catch(() => {});
  }
}

/** Writes what comes into a slot that nobody can see. */
export class UpdateWriter {
  readonly #slot: Slot;
  readonly #base: Slot | undefined;
  #at = 0;
  /** Bytes that came. */
  bytes = 0;

  constructor(slot: Slot, base: Slot | undefined) {
    this.#slot = slot;
    this.#base = base;
  }

  get complete(): boolean {
    return this.#at >= this.#slot.bytes;
  }

  /** Rejects when the outcome is not what the source has. */
  async add(region: Uint8Array): Promise<void> {
    const at = this.#at;
    if (this.complete) throw new RangeError('more regions than the slot has');
    await applyDelta(region, this.#base && regionAt(this.#base, at), regionAt(this.#slot, at), { threads });
    this.#at += REGION_BYTES;
    this.bytes += region.length;
  }
}
