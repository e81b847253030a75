// The values that this worker has put: in shared memory, where readers map them; on disk, when memory is short; in this process, when they
// are small. All workers of the host count what they have in one account.
import { closeSync, mkdirSync, openSync, rm, rmSync } from 'node:fs';
import { join } from 'node:path';
import { BlockPool, type BlockPoolStats, isSinkflexError, type SharedBlock, SinkflexError } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { StoreBirth } from '../control/index.ts';
import { Encoded, encodeAlone, isShortage, shareBlocks, unshareBlocks } from '../wire/index.ts';
import type { Ref } from './reference.ts';

/** Share of the store that is used freely; beyond it, what nobody reads goes to disk. */
const SOFT = 0.8;

/** Values from this size on are mapped for their owner when they are put, while there is room. */
const AHEAD = 32 * 2 ** 20;

/** A value that was put, as others see it. */
export interface StoredObject {
  /** Number of the ref in this worker. */
  id: number;
  bytes: number;
  place: 'memory' | 'disk' | 'process';
  /** Views of readers, and readers that are about to open it. */
  pins: number;
  /** Processes of those views. */
  holders: number[];
}

interface Spilled {
  path: string;
  checksum: string;
}

function spillFolderOf(birth: StoreBirth, worker: number): string {
  return join(birth.spillFolder, `spill-${worker}`);
}

/** What a worker that has ended left on disk. */
export function removeSpilled(birth: StoreBirth, worker: number): void {
  rm(spillFolderOf(birth, worker), { recursive: true, force: true }, () => {});
}

/** What went to disk goes with its value. */
const forgotten = new FinalizationRegistry<string>((path) => rmSync(path, { force: true }));

export class ObjectStore {
  readonly #pool;
  readonly #folder: string;
  readonly #limit: number;
  /** Least recently used first. */
  readonly #objects = new Map<number, WeakRef<Ref>>();
  readonly #spilled = new WeakMap<Encoded, Spilled>();
  #next = 1;
  #files = 0;
  #relieving = false;
  #closed = false;

  /** `worker`: number of this worker in the run, for the names of its files. */
  constructor(birth: StoreBirth, worker: number) {
    this.#pool = shareBlocks(birth.account, () => this.#tick());
    this.#limit = this.#pool.stats().limit;
    this.#folder = spillFolderOf(birth, worker);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const weak of this.#objects.values()) (weak.deref()?.value as Encoded | undefined)?.release?.();
    unshareBlocks();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  get stats(): BlockPoolStats {
    return this.#pool.stats();
  }

  /** The value, encoded once; where it has room. SINKFLEX_OBJECT_STORE_FULL when neither memory nor disk has. */
  put(ref: Ref, value: unknown): Encoded {
    const encoded = encodeAlone(value, (bytes) => this.#allocate(bytes));
    ref.resolve(encoded);
    if (encoded.block === undefined) return encoded;
    const { hostUsed } = this.stats;
    if (encoded.bytes >= AHEAD && hostUsed < this.#limit * SOFT) encoded.mapAhead();
    const number = this.#next++;
    encoded.onUse = () => this.#used(number);
    this.#objects.set(number, new WeakRef(ref));
    return encoded;
  }

  /** A block for so many bytes: after spilling, if it must be. SINKFLEX_OBJECT_STORE_FULL. */
  allocate(bytes: number): SharedBlock {
    const reserve = Math.floor(this.#limit * (1 - SOFT));
    const first = this.#create(bytes, reserve);
    if (first !== undefined) return first;
    // Between the soft limit and the hard one the value is taken at once, and room is made meanwhile.
    const second = bytes <= reserve ? this.#create(bytes, 0) : undefined;
    if (second !== undefined) {
      this.#relieve();
      return second;
    }
    let cause: unknown;
    try {
      for (const encoded of this.#idle()) {
        this.#spill(encoded);
        const block = this.#create(bytes, 0);
        if (block !== undefined) return block;
      }
    } catch (error) {
      cause = error;
    }
    const { hostUsed, limit } = this.stats;
    const why = cause === undefined ? 'nothing of it can go to disk' : (cause as Error).message;
    throw new SinkflexError(
      'SINKFLEX_OBJECT_STORE_FULL',
      `${bytes} bytes do not fit into the object store: ${hostUsed} of ${limit} bytes are in use, and ${why}`,
      { cause },
    );
  }

  /** The same; undefined when this process can have no more blocks, whatever the store has room for. */
  #allocate(bytes: number): SharedBlock | undefined {
    try {
      return this.allocate(bytes);
    } catch (error) {
      if (isSinkflexError(error) && error.code === 'SINKFLEX_OS_FAILED') return undefined;
      throw error;
    }
  }

  /** For a value that comes back: what is on disk already needs no room there, so the limit may be passed for a moment. */
  #allocateBack(bytes: number): SharedBlock {
    try {
      return this.allocate(bytes);
    } catch (error) {
      if (!isShortage(error)) throw error;
      return this.#pool.create(bytes, BlockPool.noLimit);
    }
  }

  #create(bytes: number, reserve: number): SharedBlock | undefined {
    try {
      return this.#pool.create(bytes, reserve);
    } catch (error) {
      if (isShortage(error) && (error as SinkflexError).code !== 'SINKFLEX_OS_FAILED') return undefined;
      throw error;
    }
  }

  /** Values in memory that nobody reads, least recently used first. */
  *#idle(): Generator<Encoded> {
    for (const [number, weak] of this.#objects) {
      const encoded = weak.deref()?.value;
      if (!(encoded instanceof Encoded)) this.#objects.delete(number);
      else if (encoded.block !== undefined && !inUse(encoded)) yield encoded;
    }
  }

  #used(number: number): void {
    const weak = this.#objects.get(number);
    if (weak === undefined) return;
    this.#objects.delete(number);
    this.#objects.set(number, weak);
  }

  // --- to disk

  #tick(): void {
    const { hostUsed, limit } = this.stats;
    if (hostUsed > limit * SOFT) this.#relieve();
    for (const [number, weak] of this.#objects) if (!(weak.deref()?.value instanceof Encoded)) this.#objects.delete(number);
  }

  /** Brings the store below the soft limit, in the background. */
  #relieve(): void {
    if (this.#relieving) return;
    this.#relieving = true;
    void (async () => {
      try {
        for (const encoded of this.#idle()) {
          const { hostUsed, limit } = this.stats;
          if (this.#closed || hostUsed <= limit * SOFT) break;
          await this.#spillLater(encoded);
        }
      } catch (error) {
        process.stderr.write(`[sinkflex] values stay in memory: ${(error as Error).message}\n`);
      } finally {
        this.#relieving = false;
      }
    })();
  }

  #open(): { fd: number; path: string } {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const path = join(this.#folder, String(++this.#files));
    return { fd: openSync(path, 'wx+', 0o600), path };
  }

  #spill(encoded: Encoded): void {
    const block = encoded.block!;
    if (!this.#spilled.has(encoded)) {
      const { fd, path } = this.#openForSpill();
      try {
        this.#wrote(encoded, path, block.transfer(fd, true));
      } catch (error) {
        rmSync(path, { force: true });
        throw error;
      } finally {
        closeSync(fd);
      }
    }
    this.#dropBlock(encoded);
  }

  async #spillLater(encoded: Encoded): Promise<void> {
    const block = encoded.block!;
    if (!this.#spilled.has(encoded)) {
      const { fd, path } = this.#openForSpill();
      try {
        const checksum = await block.transferLater(fd, true);
        if (encoded.block !== block) {
          rmSync(path, { force: true }); // released meanwhile
          return;
        }
        this.#wrote(encoded, path, checksum);
      } catch (error) {
        rmSync(path, { force: true });
        throw error;
      } finally {
        closeSync(fd);
      }
    }
    if (!inUse(encoded)) this.#dropBlock(encoded);
  }

  #openForSpill(): { fd: number; path: string } {
    try {
      return this.#open();
    } catch (error) {
      const message = `values cannot go to disk (${this.#folder}): ${(error as Error).message}`;
      throw new SinkflexError('SINKFLEX_OBJECT_STORE_FULL', message, { cause: error });
    }
  }

  #wrote(encoded: Encoded, path: string, checksum: string): void {
    this.#spilled.set(encoded, { path, checksum });
    forgotten.register(encoded, path, encoded);
    encoded.onRelease.push(() => {
      forgotten.unregister(encoded);
      rmSync(path, { force: true });
    });
  }

  #dropBlock(encoded: Encoded): void {
    encoded.away = { restore: () => this.#restore(encoded), restoreLater: () => this.#restoreLater(encoded) };
    encoded.closeAhead();
    encoded.block!.release();
    encoded.block = undefined;
  }

  // --- and back

  #restore(encoded: Encoded): void {
    const { path } = this.#spilled.get(encoded)!;
    const block = this.#allocateBack(encoded.blockBytes);
    const fd = openFile(path);
    try {
      this.#back(encoded, block, block.transfer(fd, false));
    } catch (error) {
      block.release();
      throw lost(error);
    } finally {
      closeSync(fd);
    }
  }

  async #restoreLater(encoded: Encoded): Promise<void> {
    const { path } = this.#spilled.get(encoded)!;
    const block = this.#allocateBack(encoded.blockBytes);
    const fd = openFile(path);
    try {
      const checksum = await block.transferLater(fd, false);
      if (encoded.away === undefined)
        block.release(); // released, or brought back by somebody else
      else this.#back(encoded, block, checksum);
    } catch (error) {
      block.release();
      throw lost(error);
    } finally {
      closeSync(fd);
    }
  }

  #back(encoded: Encoded, block: SharedBlock, checksum: string): void {
    const spilled = this.#spilled.get(encoded)!;
    if (checksum !== spilled.checksum)
      throw new RuntimeFailure('SINKFLEX_OBJECT_LOST', `${spilled.path}, where a value was kept, is damaged: make the value again`);
    encoded.block = block;
    encoded.away = undefined;
  }

  /** What was put into shared memory, least recently used first. */
  *refs(): Generator<Ref> {
    for (const weak of this.#objects.values()) {
      const ref = weak.deref();
      if (ref?.value instanceof Encoded) yield ref;
    }
  }

  list(): StoredObject[] {
    return [...this.refs()].map((ref) => ({ id: ref.id, ...storedAs(ref.value as Encoded) }));
  }
}

/** Where a value is that this worker has put. */
export function storedAs(encoded: Encoded): Omit<StoredObject, 'id'> {
  const { bytes, block } = encoded;
  if (block === undefined) return { bytes, place: encoded.away === undefined ? 'process' : 'disk', pins: 0, holders: [] };
  const { pins, inFlight, holders } = block.state();
  return { bytes, place: 'memory', pins: pins + inFlight, holders };
}

/** By readers, other than the owner that may read it soon. */
function inUse(encoded: Encoded): boolean {
  const { pins, inFlight } = encoded.block!.state();
  return pins + inFlight > (encoded.ahead === undefined ? 0 : 1);
}

function openFile(path: string): number {
  try {
    return openSync(path, 'r');
  } catch (error) {
    throw lost(error);
  }
}

function lost(error: unknown): Error {
  if (isSinkflexError(error) && error.code !== 'SINKFLEX_OS_FAILED') return error;
  return new RuntimeFailure('SINKFLEX_OBJECT_LOST', `a value that had gone to disk cannot be read: ${(error as Error).message}`, {
    cause: error,
  });
}
