// task(): calls a function somewhere else. In a worker that has a session, tasks run in its own pool; in a task thread, in its owner's.
import { RuntimeFailure } from '../api/errors.ts';
import type { ObjectStream } from '../api/types.ts';
import { keep } from '../api/values.ts';
import { FAILED, RELEASED, Ref } from '../objects/index.ts';
import { encodeAlone } from '../wire/index.ts';
import { collectRefs, session } from '../worker/index.ts';
import { TaskCall } from './call.ts';
import { runningDepth } from './current.ts';
import { type Task, taskOf } from './definition.ts';
import type { Tasks } from './engine.ts';
import type { Lane } from './leases.ts';
import { type DeskOptions, desk } from './nested.ts';
import { type CheckedOptions, checkTask } from './options.ts';
import { TaskStream } from './stream.ts';
import type { TaskCaller, TaskDefinition, TaskFunction, TaskOptions } from './types.ts';

let provided: (() => Tasks) | undefined;
let loading: Promise<unknown> | undefined;

/** The engine says so when it is loaded. */
export function provideTasks(ofHere: () => Tasks): void {
  provided = ofHere;
}

/** Most workers call no task: what runs them is loaded by the first call, or by init(). Calls back in the order of the calls. */
function withTasks(call: TaskCall, then: (tasks: Tasks) => void): void {
  if (provided !== undefined && loading === undefined) {
    then(provided());
    return;
  }
  if (loading === undefined) {
    loading = import('./engine.ts');
    const over = (): void => {
      loading = undefined;
    };
    loading.then(over, over);
  }
  loading.then(() => call.over || then(provided!())).catch((error) => call.ref.reject(error));
}

/**
 * A function that runs the task somewhere else and answers its ref at once. Refs among the arguments are resolved before it takes
 * processors.
 *
 * @example
 * const parts = files.map((file) => task(parse)(file));
 * const total = await task(merge, { cpus: 2, timeoutMs: 60_000 })(parts[0], parts[1]);
 */
export function task<F extends TaskFunction>(definition: TaskDefinition<F>, options: TaskOptions = {}): TaskCaller<F> {
  const known = taskOf(definition);
  const checked = checkTask(options);
  const call = (...args: unknown[]): unknown => {
    const owner = desk();
    if (owner !== undefined) return nested(owner, known, options, args);
    return known.streams ? stream(known, checked, args) : submit(known, checked, args);
  };
  return call as TaskCaller<F>;
}

function nested({ client, worker }: NonNullable<ReturnType<typeof desk>>, task: Task, options: TaskOptions, args: unknown[]): unknown {
  const { timeoutMs, signal, retryOn, ...travels } = options;
  const { maxRetries, placementGroup } = options;
  const forDesk: DeskOptions = {
    ...travels,
    ...(placementGroup === undefined ? {} : { placementGroup: { id: placementGroup.id } }),
    depth: runningDepth() + 1,
  };
  const { id, name, module } = task;
  const all = [worker, { id, name, module }, forDesk, ...args];
  const own = { cancellable: true, ...(timeoutMs === undefined ? {} : { timeoutMs }), ...(signal === undefined ? {} : { signal }) };
  if (task.streams) return client.stream('stream', all, own);
  return client.call('run', all, retryOn === undefined ? own : { ...own, retryOn, maxRetries: maxRetries ?? 3 });
}

// --- arguments

/** As they are now: later changes by the caller are not sent. Refs stay refs, and inner refs are kept until the call is over. */
function copied(args: readonly unknown[], call: TaskCall): unknown[] {
  const inner: Ref[] = [];
  const copies = args.map((arg) => {
    if (arg instanceof Ref || arg === null || (typeof arg !== 'object' && typeof arg !== 'function' && typeof arg !== 'symbol')) return arg;
    const refs: Ref[] = [];
    const outer = collectRefs(refs);
    try {
      const encoded = encodeAlone(arg);
      if (refs.length === 0) return encoded;
      inner.push(...refs);
      return arg;
    } finally {
      collectRefs(outer);
    }
  });
  if (inner.length > 0) {
    const letGo = keep(inner);
    call.release = () => {
      inner.length = 0;
      letGo();
    };
  }
  return copies;
}

/** Calls back when every ref among the arguments has its value. */
function whenResolved(call: TaskCall, then: () => void): void {
  let waiting = 0;
  const arrived = (ref: Ref, index: number): void => {
    if (call.over) return;
    if (ref.state === FAILED) call.ref.reject(ref.value);
    else if (ref.state === RELEASED)
      call.ref.reject(new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', `argument ${index} of task ${call.task.name}() was released`));
    else {
      call.args[index] = ref.value;
      if (--waiting === 0) then();
    }
  };
  const refs = call.args.flatMap((arg, index) => (arg instanceof Ref ? [{ ref: arg, index }] : []));
  waiting = refs.length;
  if (waiting === 0) then();
  else for (const { ref, index } of refs) ref.whenSettled((settled) => arrived(settled, index));
}

// --- calls

export function submit(task: Task, options: CheckedOptions, args: readonly unknown[]): Ref {
  session(); // throws without a run
  const ref = new Ref();
  let lane: Lane | undefined;
  const call = new TaskCall(task, ref, options, (again) => lane!.scheduler.submit(again));
  try {
    call.args = copied(args, call);
  } catch (error) {
    ref.reject(error);
    return ref;
  }
  if (call.begin())
    withTasks(call, (tasks) => {
      lane = tasks.lane(task, options);
      whenResolved(call, () => lane!.scheduler.submit(call));
    });
  return ref;
}

export function stream(task: Task, options: CheckedOptions, args: readonly unknown[]): ObjectStream<unknown> {
  session(); // throws without a run
  const ref = new Ref();
  const call = new TaskCall(task, ref, options, () => {});
  const opened = new Promise<Awaited<ReturnType<Lane['streamer']['stream']>>>((resolve, reject) => {
    ref.whenSettled((settled) => settled.state === FAILED && reject(settled.value));
    call.args = copied(args, call);
    if (!call.begin()) return;
    withTasks(call, (tasks) => {
      const { scheduler, streamer } = tasks.lane(task, options);
      whenResolved(call, () =>
        scheduler.reserve(call, (over) => {
          const opening = streamer.stream(call, over);
          const begun = (): void => {
            ref.guard = undefined;
            call.terms.settled();
          };
          opening.then(begun, () => {});
          resolve(opening);
        }),
      );
    });
  });
  return new TaskStream(opened, call);
}
