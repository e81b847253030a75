// The actor that gives versions of a segment to other hosts. It runs on the host of the segment; a replica is a segment as well, so that one
// host may pass on to the next.
import { type Pin, type SegmentAddress, VersionedSegment } from '../../kernels/host.ts';
import { defineActor } from '../api/definition.ts';
import { isNewer, regionsOf, sameVersion, type UpdateHeader, type VersionName } from './update.ts';

/** A pinned version, as long as somebody uses it. */
class Kept {
  readonly pin: Pin;
  #users = 1;

  constructor(pin: Pin) {
    this.pin = pin;
  }

  use(): this {
    this.#users++;
    return this;
  }

  release(): void {
    if (--this.#users === 0) this.pin.release();
  }
}

export class SegmentSourceActor {
  readonly #segment: VersionedSegment;
  readonly #elementBytes: 2 | 4;
  readonly #bytes: number;
  /** The newest version that was given whole, kept so that changes against it can be told: one slot, and another while replicas differ. */
  #last: Kept | undefined;

  /**
   * `elementBytes`: of what the slots hold, 4 (float32, the default) or 2 (bf16): that is what changes are told of. `bytes`: of each slot, the
   * first so many are sent; default all.
   */
  constructor(address: SegmentAddress, options: { elementBytes?: 2 | 4; bytes?: number } = {}) {
    this.#elementBytes = options.elementBytes ?? 4;
    this.#segment = VersionedSegment.open(address);
    this.#bytes = options.bytes ?? this.#segment.slotBytes;
  }

  /** What a replica must have. */
  about(): { slotBytes: number } {
    return { slotBytes: this.#bytes };
  }

  /**
   * The newest version as soon as it is newer than `have`: its header, then its regions. Ends without anything when none came within
   * `timeoutMs`.
   */
  async *after(have: VersionName | undefined, timeoutMs: number): AsyncGenerator<UpdateHeader | Uint8Array> {
    if (!this.#hasNewer(have)) {
      try {
        await this.#segment.waitForVersion(have, { timeoutMs });
      } catch (error) {
        if ((error as { code?: unknown }).code === 'SINKFLEX_STORE_TIMEOUT') return;
        throw error;
      }
    }
    const next = new Kept(this.#segment.pin());
    const base = sameVersion(this.#last?.pin.version, have) ? this.#last?.use() : undefined;
    try {
      const { lineage, version } = next.pin.version;
      yield {
        lineage,
        version,
        slotBytes: this.#bytes,
        ...(base === undefined ? {} : { base: { lineage: base.pin.version.lineage, version: base.pin.version.version } }),
      };
      yield* regionsOf(next.pin, base?.pin, this.#elementBytes, this.#bytes);
      if (isNewer(next.pin.version, this.#last?.pin.version)) {
        this.#last?.release();
        this.#last = next.use();
      }
    } finally {
      base?.release();
      next.release();
    }
  }

  #hasNewer(have: VersionName | undefined): boolean {
    const current = this.#segment.current();
    return current !== undefined && isNewer(current, have);
  }

  stop(): void {
    this.#last?.release();
    this.#segment.close();
  }
}

export const SegmentSource = defineActor(import.meta.url, 'SegmentSource', SegmentSourceActor);
