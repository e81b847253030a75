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

export interface Pin {
  readonly version: Version;
  /** The slot, [slotBytes]; nobody writes to it while the pin is held. Becomes empty (detached) at release. At most 4 GiB. */
  readonly data: Uint8Array;
  /** Gives the slot back. A pin that is collected unreleased is given back by the collector, together with its views. */
  release(): void;
}

export interface Writing {
  readonly slot: number;
  /** The slot, [slotBytes], invisible until published; holds what an older version left. Detached by publish and abort. */
  readonly data: Uint8Array;
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
  waitForVersion(lineage: number | undefined, after: number, timeoutMs: number | undefined): Promise<Version | undefined>;
  close(): void;
}
interface NativePin {
  version(): Version;
  data(): ArrayBuffer;
  release(): void;
}
interface NativeWriting {
  slot(): number;
  data(): ArrayBuffer;
  publish(lineage: number, version: number): void;
  abort(): void;
}
const native = addon as unknown as {
  VersionedSegment: new (o: Required<SegmentOptions> | SegmentAddress) => NativeSegment;
  SegmentPin: new (segment: NativeSegment) => NativePin;
  SegmentWriting: new (begun: unknown) => NativeWriting;
};

class SegmentPin implements Pin {
  readonly version: Version;
  readonly #native: NativePin;
  #view: Uint8Array | undefined;

  constructor(segment: NativeSegment) {
    this.#native = callNative(() => new native.SegmentPin(segment));
    this.version = this.#native.version();
  }

  get data(): Uint8Array {
    this.#view ??= new Uint8Array(callNative(() => this.#native.data()));
    return this.#view;
  }

  release(): void {
    this.#view = undefined;
    this.#native.release();
  }
}

class SegmentWriting implements Writing {
  readonly slot: number;
  readonly #native: NativeWriting;
  #view: Uint8Array | undefined;

  constructor(begun: unknown) {
    this.#native = callNative(() => new native.SegmentWriting(begun));
    this.slot = this.#native.slot();
  }

  get data(): Uint8Array {
    this.#view ??= new Uint8Array(callNative(() => this.#native.data()));
    return this.#view;
  }

  publish(v: { lineage: number; version: number }): void {
    callNative(() => this.#native.publish(v.lineage, v.version));
    this.#view = undefined;
  }

  abort(): void {
    this.#view = undefined;
    this.#native.abort();
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
    return new SegmentPin(this.#native);
  }

  /**
   * Takes the writer lock and a slot that nobody can see; a writer that died is recovered from. Default deadline 30 s:
   * SINKFLEX_STORE_FULL (all slots stay pinned), SINKFLEX_STORE_BUSY (another writer), SINKFLEX_MEMORY_SHORT (no room for a slot more).
   */
  async beginWrite(o: { timeoutMs?: number } = {}): Promise<Writing> {
    return new SegmentWriting(await awaitNative(callNative(() => this.#native.beginWrite(o.timeoutMs ?? 30_000))));
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
