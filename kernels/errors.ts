// The typed errors of the engine floor: one class, one brand that survives copies and threads, and the table of every code.
// Messages say what happened and to what; the table says what to do about it.

/** Every error code of kernels/, with what a caller can do about it. docs/errors.md lists the same set. */
export const kernelErrorCodes = {
  SINKFLEX_ADDON_MISSING:
    'Build the native addon: run `npm install` (or `node scripts/install.mjs`) in the package; a C++20 compiler and Python are needed.',
  SINKFLEX_ADDON_MISMATCH: 'The built addon is of another version of the package: run `node scripts/install.mjs`.',
  SINKFLEX_CPU_UNSUPPORTED: 'SINKFLEX_CPU names an instruction set that this machine or build does not have: unset it, or choose another.',
  SINKFLEX_BACKEND_MISSING:
    'Build the CUDA backend with `npm run build:cuda` (needs nvcc 12 or newer and CMake) or name one in SINKFLEX_CUDA_LIBRARY, or compute on the CPU (--device cpu). `sinkflex doctor` says what was found.',
  SINKFLEX_BACKEND_MISMATCH: 'The backend library is of another version of the package, or none: run `npm run build:cuda` again.',
  SINKFLEX_DEVICE_UNAVAILABLE:
    'No usable GPU: the message says whether the driver, the device or its compute capability (8.0 or newer) is missing. `nvidia-smi` shows what the driver sees.',
  SINKFLEX_DEVICE_FAILED:
    'The GPU or its driver failed; the message has the CUDA error. Restart the process; `nvidia-smi` shows the state of the GPU.',
  SINKFLEX_BAD_ARGUMENT: 'Correct the argument that the message names.',
  SINKFLEX_OUT_OF_MEMORY: 'Make the batch, the cache (maxSequences x maxSequenceTokens) or the model smaller.',
  SINKFLEX_MEMORY_SHORT:
    'The machine has no room for the model or for another slot: take a smaller model, close other stores, or create the store with fewer slots.',
  SINKFLEX_MEMORY_GONE:
    'The process that made the shared memory is dead or has released it, or it was released here: make or open it again.',
  SINKFLEX_OBJECT_STORE_FULL:
    'Neither memory (objectStoreMemory) nor the spill folder has room for the value: release refs and views, or raise objectStoreMemory.',
  SINKFLEX_OS_FAILED: 'A system call failed; the message names it and its errno.',
  SINKFLEX_OS_PARENT_GONE: 'The parent process ended before its death could be watched: exit.',
  SINKFLEX_STORE_EMPTY: 'Publish a version first: WeightStore.initialise, loadFolder or Writing.publish.',
  SINKFLEX_STORE_FULL: 'Every slot is pinned: release pins, or raise maxSlots.',
  SINKFLEX_STORE_READERS: 'All reader rows are taken: close engines, or raise readers at create().',
  SINKFLEX_STORE_GONE: 'The process that holds the store is no longer alive: open the store of its successor.',
  SINKFLEX_STORE_BUSY: 'Another writer is between beginWrite and publish: wait for it.',
  SINKFLEX_STORE_ORDER: 'Versions only grow: publish a greater (lineage, version), a restore takes the next lineage.',
  SINKFLEX_STORE_STOPPED: 'The engine or store was closed while its writer waited for a slot: nothing was published.',
  SINKFLEX_STORE_CLOSED: 'The store was closed: open it again.',
  SINKFLEX_STORE_TIMEOUT: 'No newer version was published in time: wait longer, or look at the writer.',
  SINKFLEX_STORE_MISMATCH: 'The store holds images of another size than this model configuration: open it with its own address.',
  SINKFLEX_STORE_FROZEN:
    'A store of dtype mxfp4 generates, scores and carries adapters (model.lora_rank, --lora-rank, WeightStore.createAdapter): learn those, or take dtype bfloat16.',
  SINKFLEX_DELTA_DAMAGED:
    'The change of weights is cut off, malformed, or of another version than the receiver has: send the whole version.',
  SINKFLEX_COLLECTIVE_BROKEN:
    'A member of the collective died, left, was aborted or ran out of time (details say which): make a new group with those that live.',
  SINKFLEX_COLLECTIVE_MISMATCH:
    'The members made different calls: all make the same calls in the same order with the same sizes. The group goes on.',
  SINKFLEX_COLLECTIVE_GONE: 'The process that made the collective ended before all had joined: make a new group.',
  SINKFLEX_CONFIG_INVALID: 'Correct the key of config.json that the message names.',
  SINKFLEX_CONFIG_UNSUPPORTED: 'The engine does not run this architecture or option: Limits in the README says what it runs.',
  SINKFLEX_CHECKPOINT_MISSING: 'The folder lacks a file: a checkpoint has config.json and model.safetensors (or shards with an index).',
  SINKFLEX_CHECKPOINT_CORRUPT: 'The file is not a well-formed safetensors file: copy it again from its source.',
  SINKFLEX_CHECKPOINT_TENSOR:
    'A tensor is missing, left over, or has the wrong shape or dtype for the configuration: check that config.json belongs to the weights.',
  SINKFLEX_ENGINE_DISPOSED: 'The engine was disposed: make a new one.',
  SINKFLEX_ENGINE_BUSY: 'Await the passes that are under way first.',
  SINKFLEX_ENGINE_NOTHING_KEPT: 'Call forward with keep: true before backward.',
  SINKFLEX_ENGINE_NOT_FINITE:
    'Gradients or logits are infinite or NaN: lower the learning rate (actor.optim.lr, sft.lr), or check the checkpoint that the weights come from (model.path, --resume). A refused optimizerStep changed nothing: zeroGradients first. Generation: restore an earlier version.',
  SINKFLEX_SEQUENCE_CLOSED: 'The sequence was closed, or never opened: openSequence gives a new one.',
  SINKFLEX_SEQUENCE_BUSY: 'A sequence takes one generate at a time: await the previous one.',
  SINKFLEX_INTERNAL: 'A bug in SinkFlex: please report it with the message.',
} as const;

export type KernelErrorCode = keyof typeof kernelErrorCodes;

const brand = Symbol.for('sinkflex.error');

export class SinkflexError extends Error {
  readonly code: `SINKFLEX_${string}`;
  readonly details?: Record<string, unknown>;

  constructor(code: `SINKFLEX_${string}`, message: string, options: { cause?: unknown; details?: Record<string, unknown> } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SinkflexError';
    this.code = code;
    if (options.details !== undefined) this.details = options.details;
    Object.defineProperty(this, brand, { value: true, enumerable: false });
  }
}

/** True for every SinkflexError, also one of another copy of this package or a subclass of a higher floor. */
export function isSinkflexError(e: unknown): e is SinkflexError {
  return typeof e === 'object' && e !== null && (e as Record<symbol, unknown>)[brand] === true;
}

/** Native code throws plain errors that carry a `code`; this makes them ours. Anything without such a code is passed through. */
export function fromNative(e: unknown): unknown {
  if (!(e instanceof Error) || isSinkflexError(e)) return e;
  const code: unknown = (e as Error & { code?: unknown }).code;
  if (typeof code !== 'string' || !code.startsWith('SINKFLEX_')) return e;
  // Met in the middle of a run, far from the setting that is behind it.
  const advice =
    code === 'SINKFLEX_ENGINE_NOT_FINITE' ? '; lower the learning rate, or check the checkpoint that the weights come from' : '';
  const error = new SinkflexError(code as `SINKFLEX_${string}`, e.message + advice);
  Error.captureStackTrace?.(error, fromNative);
  return error;
}

/** Calls native code; its errors arrive as SinkflexError. */
export function callNative<T>(call: () => T): T {
  try {
    return call();
  } catch (e) {
    throw fromNative(e);
  }
}

/** The same for a promise of native code. */
export async function awaitNative<T>(promise: Promise<T>): Promise<T> {
  try {
    return await promise;
  } catch (e) {
    throw fromNative(e);
  }
}

/** A value of a file as a message shows it: whatever it is, short. */
export function shown(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    text = 'something nested too deeply'; // thousands of brackets
  }
  return text.length <= 200 ? text : `${text.slice(0, 200)}...`;
}
