// Memory that processes and threads of a host share, as ordinary ArrayBuffers. No file and no name of it remains: the kernel frees it when
// its maker has let go of it and nobody has it mapped any more.
import { callNative } from './errors.ts';
import { addon } from './native.ts';

/** Where a piece of shared memory is: plain data for other processes of the host. Good while its maker lives and has not released it. */
export interface SharedMemoryAddress {
  pid: number;
  /** Start time of that process, against a reused pid. */
  startTime: string;
  fd: number;
  nonce: string;
  bytes: number;
}

interface NativeSharedMemory {
  address(): SharedMemoryAddress;
  view(offset: number, bytes: number): ArrayBuffer;
  write(offset: number, source: Uint8Array, threads: number): void;
  release(): void;
}
const native = addon as unknown as {
  SharedMemory: new (bytesOrAddress: number | SharedMemoryAddress, isPrivate?: boolean) => NativeSharedMemory;
};

/**
 * Views are external ArrayBuffers (not SharedArrayBuffers; Atomics work on them, except wait and notify), counted by V8 as external memory.
 * A view keeps its mapping until it is collected, even when this object is gone; `release()` ends them all at once.
 *
 * @example
 * const memory = SharedMemory.create(1 << 20);
 * const cells = new Int32Array(memory.view().buffer);
 * // elsewhere: SharedMemory.open(address).view()[0] = 1;
 */
export class SharedMemory {
  readonly address: SharedMemoryAddress;
  readonly #native: NativeSharedMemory;

  private constructor(memory: NativeSharedMemory) {
    this.#native = memory;
    this.address = memory.address();
  }

  /** Zeros. Every page is allocated now, so that no access can fail later; SINKFLEX_MEMORY_SHORT when there is no room. */
  static create(bytes: number): SharedMemory {
    return new SharedMemory(callNative(() => new native.SharedMemory(bytes)));
  }

  /**
   * Memory of any process of this host and user, this one included. `shared`: what is written is seen by all. `private`: what is written
   * stays in this mapping (copy on write); pages that were not written here show what others write. SINKFLEX_MEMORY_GONE when its maker is
   * dead or has released it.
   */
  static open(address: SharedMemoryAddress, mode: 'shared' | 'private' = 'shared'): SharedMemory {
    return new SharedMemory(callNative(() => new native.SharedMemory(address, mode === 'private')));
  }

  get bytes(): number {
    return this.address.bytes;
  }

  /** Bytes [offset, offset + bytes), default all: at most 4 GiB in one view. Each call makes an ArrayBuffer of its own. */
  view(offset = 0, bytes: number = this.bytes - offset): Uint8Array {
    return new Uint8Array(callNative(() => this.#native.view(offset, bytes)));
  }

  /** Copies the bytes of `source` to `offset`: large ones by several threads (`threads`, default by size) and past the caches. */
  write(offset: number, source: ArrayBufferView | ArrayBuffer, threads = 0): void {
    const bytes =
      source instanceof ArrayBuffer ? new Uint8Array(source) : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    callNative(() => this.#native.write(offset, bytes, threads));
  }

  /** Its views become empty, and the mapping ends some turns later. If it was made here, nobody can open it from now on; whoever has, keeps it. */
  release(): void {
    callNative(() => this.#native.release());
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
