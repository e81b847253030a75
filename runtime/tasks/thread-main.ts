// Entry of a task thread, loaded by piscina. Takes part in the run as a guest of the worker that owns the pool, so that tasks can call
// actors, spawn, and pass refs on; then runs batches of tasks, one task after the other.
import { performance } from 'node:perf_hooks';
import { BroadcastChannel, threadId, workerData } from 'node:worker_threads';
import type { ToAgent } from '../control/index.ts';
import { type Encoded, encodeError } from '../wire/index.ts';
import { Session } from '../worker/index.ts';
import { begin, end, RunningTask } from './current.ts';
import { knownTask, loadTask, type Task } from './definition.ts';
import {
  type Batch,
  type BatchReply,
  batchOf,
  type FlatBatch,
  type FlatReply,
  flatReply,
  type Kept,
  type Outcome,
  pack,
  type SentTask,
  unpack,
} from './envelope.ts';
import type { FromGuest, GuestBirth, ToGuest } from './guests.ts';
import { nestIn } from './nested.ts';
import { BEGUN, CANCEL, DONE } from './slots.ts';

export interface ThreadData {
  channel: string;
  cells: Int32Array;
  /** Worker that has the pool. */
  owner: number;
}

const { channel: channelName, cells, owner } = workerData as ThreadData;
const channel = new BroadcastChannel(channelName);
const running = new Map<number, RunningTask>();
const post = (message: FromGuest): void => channel.postMessage(message);

async function join(): Promise<Session> {
  const birth = await new Promise<GuestBirth>((resolve) => {
    channel.onmessage = (event) => {
      const message = (event as { data: ToGuest }).data;
      if (message.t === 'welcome' && message.thread === threadId) resolve(message.birth);
    };
    post({ t: 'join', thread: threadId });
  });
  const { worker } = birth;
  const own = new Session(birth, { send: (message: ToAgent) => post({ t: 'say', worker, message }) });
  channel.onmessage = (event) => {
    const message = (event as { data: ToGuest }).data;
    if (message.t === 'cancel') running.get(message.slot)?.abort();
    else if (message.t === 'hear' && message.worker === worker) {
      const said = message.message;
      if (said.t === 'place' || said.t === 'killed' || said.t === 'answer') own.onAgent(said);
    }
  };
  await own.open();
  nestIn(own, owner);
  return own;
}
const here = await join();

/** Memory of the answers of this batch, and of the one before: its owner has read that when it sends the next but one. */
let results: Encoded[] = [];
let previous: Encoded[] = [];
let forget: NodeJS.Timeout | undefined;
const FORGET_MS = 10_000;

function nextBatch(): void {
  clearTimeout(forget);
  previous = results;
  results = [];
}

function batchOver(): void {
  if (results.length + previous.length === 0) return;
  forget = setTimeout(() => {
    results = [];
    previous = [];
  }, FORGET_MS).unref();
}

function succeeded(value: unknown): Outcome {
  const kept: Kept = { refs: [], memory: results };
  const packed = pack(value, kept);
  for (const ref of kept.refs) here.lend(ref, owner);
  return { value: packed };
}

/** A promise only if the task gave one. */
function run(task: Task, sent: SentTask, depth: number): Outcome | Promise<Outcome> {
  const { slot } = sent;
  const expiresAt = sent.remainingMs > 0 ? performance.now() + sent.remainingMs : 0;
  const state = new RunningTask(task.name, sent.attempt, expiresAt, () => (Atomics.load(cells, slot) & CANCEL) !== 0, depth);
  running.set(slot, state);
  begin(state);
  const over = (): void => {
    end(state);
    running.delete(slot);
    Atomics.or(cells, slot, DONE);
  };
  try {
    const result = task.run(...(unpack(sent.args) as unknown[]));
    if (typeof (result as PromiseLike<unknown> | undefined)?.then === 'function')
      return Promise.resolve(result as PromiseLike<unknown>)
        .then(succeeded)
        .catch((error: unknown) => ({ error: encodeError(error) }))
        .finally(over);
    const outcome = succeeded(result);
    over();
    return outcome;
  } catch (error) {
    over();
    return { error: encodeError(error) };
  }
}

const notBegun: Outcome = { begun: false };

export default async function receive(batch: FlatBatch): Promise<FlatReply> {
  return flatReply(await runBatch(batchOf(batch)));
}

async function runBatch(batch: Batch): Promise<BatchReply> {
  nextBatch();
  const outcomes: Outcome[] = [];
  const reply: BatchReply = { worker: here.worker, outcomes, ms: 0, waited: false };
  let task: Task;
  try {
    task = knownTask(batch.task.id) ?? (await loadTask(batch.task));
  } catch (error) {
    for (const { args } of batch.tasks) {
      // Whoever answers for a task has read its arguments: the refs in them are lent to this thread.
      unpack(args);
      outcomes.push({ error: encodeError(error) });
    }
    return reply;
  }
  const began = performance.now();
  for (const sent of batch.tasks) {
    // After one that waited, the rest goes back: others wait for the answers of this batch.
    const mayBegin = !reply.waited && (Atomics.or(cells, sent.slot, BEGUN) & CANCEL) === 0;
    if (!mayBegin) {
      outcomes.push(notBegun);
      continue;
    }
    const outcome = run(task, sent, batch.depth);
    if (outcome instanceof Promise) reply.waited = true;
    outcomes.push(outcome instanceof Promise ? await outcome : outcome);
  }
  reply.ms = performance.now() - began;
  batchOver();
  return reply;
}
