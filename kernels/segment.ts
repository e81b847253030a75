// Versioned segments of shared memory: a few equal slots, of which one is current. Publishing flips the current slot by one atomic
// store; readers of any process of the host pin the version that they read. The protocol: kernels/memory/versioned_segment.h.
import { awaitNative, callNative, SinkflexError } from './errors.ts';
import { addon } from './native.ts';

/** Where a segment is: plain data for other processes of the host. Good while the process `pid` keeps the segment open. */
export interface SegmentAddress {
  pid: number;
  /** Start time of that process, against a reused pid. */
  startTime: string;
  controlFd: number;
  nonce: string;
}

/** Ordered by (lineage, version): a restore to an earlier version takes the next lineage. */
export interface Version {
  lineage: number;
  version: number;
  slot: number;
}

/** What JavaScript sees of a slot. */
export interface Slot {
  readonly bytes: number;
  /**
   * Bytes [offset, offset + bytes): at most 4 GiB in one view (Node's limit). Each call makes an ArrayBuffer of its own; all become empty
   * (detached) with what they show.
   */
  view(offset: number, bytes: number): Uint8Array;
  /** The slot as one view, where it is not larger than one. */
  readonly data: Uint8Array;
}

/** Nobody writes to the slot while the pin is held; its views end at release. */
export interface Pin extends Slot {
  readonly version: Version;
  /** Gives the slot back. A pin that is collected unreleased is given back by the collector, together with its views. */
  release(): void;
}

/** A slot that is invisible until published and holds what an older version left; its views end with publish and abort. */
export interface Writing extends Slot {
  readonly slot: number;
  /** Makes it the current version. It must be greater than the current (lineage, version). */
  publish(v: { lineage: number; version: number }): void;
  abort(): void;
}

export interface SegmentOptions {
  slotBytes: number;
  /** Slots whose memory is taken at once (default 3). */
  slots?: number;
  /** A writer that finds all slots pinned adds one up to this (default 8, at least `slots`). */
  maxSlots?: number;
  /** How many pins can be held at a time, over all processes (default 64). */
  readers?: number;
}

interface NativeSegment {
  address(): SegmentAddress;
  sizes(): { slotBytes: number; slots: number; maxSlots: number };
  current(): Version | undefined;
  publishedAt(): bigint | undefined;
  pins(): (Version & { pid: number })[];
  beginWrite(timeoutMs: number): Promise<unknown>;
  beginWriteNow(): unknown;
  waitForVersion(lineage: number | undefined, after: number, timeoutMs: number | undefined): Promise<Version | undefined>;
  close(): void;
}
interface NativeSlot {
  view(offset: number, bytes: number): ArrayBuffer;
}
interface NativePin extends NativeSlot {
  version(): Version;
  release(): void;
}
interface NativeWriting extends NativeSlot {
  slot(): number;
  publish(lineage: number, version: number): void;
  abort(): void;
}
const native = addon as unknown as {
  VersionedSegment: new (o: Required<SegmentOptions> | SegmentAddress) => NativeSegment;
  SegmentPin: new (segment: NativeSegment) => NativePin;
  SegmentWriting: new (begun: unknown) => NativeWriting;
};

class SlotViews<N extends NativeSlot> implements Slot {
  readonly bytes: number;
  protected readonly native: N;
  protected whole: Uint8Array | undefined;

  constructor(slot: N, bytes: number) {
    this.native = slot;
    this.bytes = bytes;
  }

  view(offset: number, bytes: number): Uint8Array {
    return new Uint8Array(callNative(() => this.native.view(offset, bytes)));
  }

  get data(): Uint8Array {
    this.whole ??= this.view(0, this.bytes);
    return this.whole;
  }
}

class SegmentPin extends SlotViews<NativePin> implements Pin {
  readonly version: Version;

  constructor(segment: NativeSegment, bytes: number) {
    super(
      callNative(() => new native.SegmentPin(segment)),
      bytes,
    );
    this.version = this.native.version();
  }

  release(): void {
    this.whole = undefined;
    this.native.release();
  }
}

class SegmentWriting extends SlotViews<NativeWriting> implements Writing {
  readonly slot: number;

  constructor(begun: unknown, bytes: number) {
    super(
      callNative(() => new native.SegmentWriting(begun)),
      bytes,
    );
    this.slot = this.native.slot();
  }

  publish(v: { lineage: number; version: number }): void {
    callNative(() => this.native.publish(v.lineage, v.version));
    this.whole = undefined;
  }

  abort(): void {
    this.whole = undefined;
    this.native.abort();
  }
}

/**
 * @example
 * const segment = VersionedSegment.create({ slotBytes: 1024 });
 * const writing = await segment.beginWrite();
 * writing.data.fill(1);
 * writing.publish({ lineage: 0, version: 0 });
 * // in another process: const pin = VersionedSegment.open(address).pin(); ... pin.release();
 */
export class VersionedSegment {
  readonly address: SegmentAddress;
  readonly slotBytes: number;
  readonly #native: NativeSegment;

  private constructor(segment: NativeSegment) {
    this.#native = segment;
    this.address = segment.address();
    this.slotBytes = segment.sizes().slotBytes;
  }

  /** Takes the memory of `slots` slots now and waits for it (about half a second a GiB): make large ones before the loop matters. */
  static create(o: SegmentOptions): VersionedSegment {
    const slots = o.slots ?? 3;
    const all = { slotBytes: o.slotBytes, slots, maxSlots: o.maxSlots ?? Math.max(8, slots), readers: o.readers ?? 64 };
    return new VersionedSegment(callNative(() => new native.VersionedSegment(all)));
  }

  /** A segment of any process of this host and user. SINKFLEX_STORE_GONE when that process is dead or closed it. */
  static open(address: SegmentAddress): VersionedSegment {
    return new VersionedSegment(callNative(() => new native.VersionedSegment(address)));
  }

  /** The native object, for other classes of the addon (the engine). */
  get handle(): object {
    return this.#native;
  }

  /** Slots that have memory now. */
  get slots(): number {
    return callNative(() => this.#native.sizes().slots);
  }

  /** The newest version; undefined before the first publish. */
  current(): Version | undefined {
    return callNative(() => this.#native.current());
  }

  /** When the newest version was flipped, on the clock of process.hrtime.bigint(), also between processes. For measurements. */
  publishedAt(): bigint | undefined {
    return callNative(() => this.#native.publishedAt());
  }

  /** Who holds which version now. */
  pins(): (Version & { pid: number })[] {
    return callNative(() => this.#native.pins());
  }

  /** Pins the newest version. SINKFLEX_STORE_EMPTY before the first publish; SINKFLEX_STORE_READERS when all rows are taken. */
  pin(): Pin {
    return new SegmentPin(this.#native, this.slotBytes);
  }

  /**
   * Takes the writer lock and a slot that nobody can see; a writer that died is recovered from. Default deadline 30 s:
   * SINKFLEX_STORE_FULL (all slots stay pinned), SINKFLEX_STORE_BUSY (another writer), SINKFLEX_MEMORY_SHORT (no room for a slot more).
   */
  async beginWrite(o: { timeoutMs?: number } = {}): Promise<Writing> {
    return new SegmentWriting(await awaitNative(callNative(() => this.#native.beginWrite(o.timeoutMs ?? 30_000))), this.slotBytes);
  }

  /** The same for a caller that cannot wait: SINKFLEX_STORE_FULL or SINKFLEX_STORE_BUSY at once. */
  beginWriteNow(): Writing {
    return new SegmentWriting(
      callNative(() => this.#native.beginWriteNow()),
      this.slotBytes,
    );
  }

  /**
   * The newest version as soon as it is newer than `after`: a number counts within the present lineage, and a change of lineage ends
   * the wait too; a Version also notices a lineage that changed before the call; undefined waits for anything published.
   * Without timeoutMs there is no deadline; else SINKFLEX_STORE_TIMEOUT. close() ends it with SINKFLEX_STORE_CLOSED.
   */
  async waitForVersion(after?: number | { lineage: number; version: number }, o: { timeoutMs?: number } = {}): Promise<Version> {
    const seen =
      typeof after === 'object' ? after : { lineage: after === undefined ? undefined : this.current()?.lineage, version: after ?? -1 };
    const found = await awaitNative(callNative(() => this.#native.waitForVersion(seen.lineage, seen.version, o.timeoutMs)));
    if (found) return found;
    throw new SinkflexError('SINKFLEX_STORE_TIMEOUT', `no version after ${JSON.stringify(after)} was published within ${o.timeoutMs} ms`, {
      details: { after, current: this.current() },
    });
  }

  /** Lets go of the segment in this process; pins and writings that are held stay valid. In the creator: no one can open it any more. */
  close(): void {
    this.#native.close();
  }
}
