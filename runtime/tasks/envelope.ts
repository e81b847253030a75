// What a pool and its threads say to each other: batches of tasks there, their outcomes back. Primitive values as they are, everything
// else as bytes of our codec, so that errors, refs and handles arrive as in any call.
import type { Ref } from '../objects/index.ts';
import { decodeAlone, decodeShared, Encoded, type ErrorData, encodeAlone } from '../wire/index.ts';
import { collectRefs, session } from '../worker/index.ts';
import type { TaskName } from './definition.ts';

/** Bytes that stand alone, each array with a buffer of its own: cloning a view would clone all that it is a view of. */
export interface Packed {
  readonly header: Uint8Array;
  readonly sections: Uint8Array;
}

/** A large value in shared memory; whoever packed it keeps it until it was unpacked. */
export interface PackedShared {
  readonly descriptor: Uint8Array;
  readonly headerBytes: number;
}

/** A primitive, bytes, or where they are. */
export type Sent = { plain: unknown } | Packed | PackedShared;

/** What pack() found and made: refs of the value, and memory to be kept until it was unpacked. */
export interface Kept {
  readonly refs: Ref[];
  readonly memory: Encoded[];
}

export interface SentTask {
  slot: number;
  attempt: number;
  args: Sent;
  /** Milliseconds of the deadline that are left; 0: none. */
  remainingMs: number;
}

export interface Batch {
  task: TaskName;
  /** Of its calls. */
  depth: number;
  tasks: SentTask[];
}

export type Outcome =
  | { value: Sent }
  | { error: ErrorData }
  /** Given back: something before it was not as quick as the batch was made for. */
  | { begun: false };

export interface BatchReply {
  worker: number;
  outcomes: Outcome[];
  /** Time that the batch took, and whether a task of it was asynchronous. */
  ms: number;
  waited: boolean;
}

// Flat on the way between threads: cloning names each property of each object, which costs as much as the rest of a quick task's trip.

/** Id, name, module, depth; then of each task slot, attempt, milliseconds left, and its arguments: an array of primitives as it is. */
export type FlatBatch = unknown[];
/** Worker, ms, waited; then the outcomes: plain values that are no objects, and arrays, as they are. */
export type FlatReply = unknown[];

const TASKS_AT = 4;
const PER_TASK = 4;
const OUTCOMES_AT = 3;

export function flatBatch({ task, depth, tasks }: Batch): FlatBatch {
  const flat: unknown[] = [task.id, task.name, task.module, depth];
  for (const { slot, attempt, remainingMs, args } of tasks) flat.push(slot, attempt, remainingMs, 'plain' in args ? args.plain : args);
  return flat;
}

export function batchOf(flat: FlatBatch): Batch {
  const [id, name, module] = flat as string[];
  const tasks: SentTask[] = [];
  for (let i = TASKS_AT; i < flat.length; i += PER_TASK) {
    const [slot, attempt, remainingMs] = [flat[i], flat[i + 1], flat[i + 2]] as number[];
    tasks.push({ slot: slot!, attempt: attempt!, remainingMs: remainingMs!, args: sentOf(flat[i + 3]) });
  }
  return { task: { id: id!, name: name!, module: module! }, depth: flat[3] as number, tasks };
}

export function flatReply({ worker, ms, waited, outcomes }: BatchReply): FlatReply {
  const flat: unknown[] = [worker, ms, waited];
  for (const outcome of outcomes) flat.push('value' in outcome && 'plain' in outcome.value ? outcome.value.plain : outcome);
  return flat;
}

export function replyOf(flat: FlatReply): BatchReply {
  const [worker, ms, waited] = flat as [number, number, boolean];
  const outcomes: Outcome[] = [];
  for (let i = OUTCOMES_AT; i < flat.length; i++) {
    const item = flat[i];
    outcomes.push(bare(item) ? { value: { plain: item } } : (item as Outcome));
  }
  return { worker, ms, waited, outcomes };
}

/** What a plain value is, and nothing else that is sent. */
function bare(item: unknown): boolean {
  return primitive(item) || Array.isArray(item);
}

function sentOf(item: unknown): Sent {
  return bare(item) ? { plain: item } : (item as Sent);
}

function primitive(value: unknown): boolean {
  return value === null || (typeof value !== 'object' && typeof value !== 'function' && typeof value !== 'symbol');
}

function alone(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

export function pack(value: unknown, kept: Kept): Sent {
  if (primitive(value)) return { plain: value };
  if (Array.isArray(value) && value.length <= 16 && value.every(primitive)) return { plain: [...value] };
  const outer = collectRefs(kept.refs);
  const { store } = session();
  try {
    const encoded = encodeAlone(value, store === undefined ? undefined : (bytes) => store.allocate(bytes));
    const { header, sections, block, headerBytes } = encoded;
    if (block !== undefined || encoded.blocks.length > 0) kept.memory.push(encoded);
    if (block !== undefined) return { descriptor: new Uint8Array(block.descriptor), headerBytes };
    return { header: alone(header), sections: alone(sections) };
  } finally {
    collectRefs(outer);
  }
}

export function unpack(sent: Sent): unknown {
  if ('plain' in sent) return sent.plain;
  if ('descriptor' in sent) return decodeShared(sent.descriptor, sent.headerBytes, true);
  return decodeAlone(new Encoded(sent.header, sent.sections));
}
