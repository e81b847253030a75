// What a pool and its threads say to each other: batches of tasks there, their outcomes back. Primitive values as they are, everything
// else as bytes of our codec, so that errors, refs and handles arrive as in any call.
import type { Ref } from '../objects/index.ts';
import { decodeAlone, Encoded, type ErrorData, encodeAlone } from '../wire/index.ts';
import { collectRefs } from '../worker/index.ts';
import type { TaskName } from './definition.ts';

/** Bytes that stand alone, each array with a buffer of its own: cloning a view would clone all that it is a view of. */
export interface Packed {
  readonly header: Uint8Array;
  readonly sections: Uint8Array;
}

/** A primitive, or bytes. */
export type Sent = { plain: unknown } | Packed;

export interface SentTask {
  slot: number;
  attempt: number;
  args: Sent;
  /** Milliseconds of the deadline that are left; 0: none. */
  remainingMs: number;
}

export interface Batch {
  task: TaskName;
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

function primitive(value: unknown): boolean {
  return value === null || (typeof value !== 'object' && typeof value !== 'function' && typeof value !== 'symbol');
}

function alone(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

/** Refs that are found are added to `refs`. */
export function pack(value: unknown, refs: Ref[]): Sent {
  if (primitive(value)) return { plain: value };
  if (Array.isArray(value) && value.length <= 16 && value.every(primitive)) return { plain: [...value] };
  const outer = collectRefs(refs);
  try {
    const { header, sections } = encodeAlone(value);
    return { header: alone(header), sections: alone(sections) };
  } finally {
    collectRefs(outer);
  }
}

export function unpack(sent: Sent): unknown {
  return 'plain' in sent ? sent.plain : decodeAlone(new Encoded(sent.header, sent.sections));
}
