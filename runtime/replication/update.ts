// One version of a segment on its way to another host: a header, then its regions in order, each whole or as a change.
import { crc32 } from 'node:zlib';
import type { RegionCodec } from './codec.ts';

/** A region: what is encoded, sent and written at once. */
export const REGION_BYTES = 4 * 2 ** 20;

export interface VersionName {
  lineage: number;
  version: number;
}

export interface UpdateHeader extends VersionName {
  slotBytes: number;
  /** What changes are relative to; absent: everything is sent whole. */
  base?: VersionName;
  codec: string;
}

/** Whether it is sent whole or as a change, and the CRC-32 of the region as it is to be. */
export type UpdateRegion = ['whole' | 'change', crc: number, bytes: Uint8Array];

export const sameVersion = (a: VersionName | undefined, b: VersionName | undefined): boolean =>
  a !== undefined && b !== undefined && a.lineage === b.lineage && a.version === b.version;

export const isNewer = (a: VersionName, b: VersionName | undefined): boolean =>
  b === undefined || a.lineage > b.lineage || (a.lineage === b.lineage && a.version > b.version);

export function* regionsOf(next: Uint8Array, base: Uint8Array | undefined, codec: RegionCodec): Generator<UpdateRegion> {
  for (let at = 0; at < next.length; at += REGION_BYTES) {
    const region = next.subarray(at, at + REGION_BYTES);
    const change = base === undefined ? undefined : codec.encode(base.subarray(at, at + REGION_BYTES), region);
    yield change === undefined ? ['whole', crc32(region), region] : ['change', crc32(region), change];
  }
}

/** Writes what comes into a slot that nobody can see. */
export class UpdateWriter {
  readonly #slot: Uint8Array;
  readonly #base: Uint8Array | undefined;
  readonly #codec: RegionCodec;
  #at = 0;
  /** Bytes that came. */
  bytes = 0;

  constructor(slot: Uint8Array, base: Uint8Array | undefined, codec: RegionCodec) {
    this.#slot = slot;
    this.#base = base;
    this.#codec = codec;
  }

  get complete(): boolean {
    return this.#at >= this.#slot.length;
  }

  /** Throws when it is not what the source has. */
  add([how, crc, bytes]: UpdateRegion): void {
    const region = this.#slot.subarray(this.#at, this.#at + REGION_BYTES);
    if (region.length === 0) throw new RangeError('more regions than the slot has');
    if (how === 'whole') {
      if (bytes.length !== region.length) throw new RangeError(`a region of ${bytes.length} bytes, not ${region.length}`);
      region.set(bytes);
    } else {
      if (this.#base === undefined) throw new RangeError('a change without a base');
      region.set(this.#base.subarray(this.#at, this.#at + region.length));
      this.#codec.apply(region, bytes);
    }
    if (crc32(region) !== crc) throw new RangeError(`the region at ${this.#at} is not what was sent`);
    this.#at += region.length;
    this.bytes += bytes.length;
  }
}
