// The lifecycle of an actor's instance: constructor, restore(checkpoint), start(), then checkpoint() now and then, drain() before an end
// that somebody planned, and stop(). Only the constructor and what belongs to it may fail the actor; later hooks that throw are reported.
import { RuntimeFailure } from '../api/errors.ts';
import type { EncodedValue } from '../control/index.ts';
import type { Ref } from '../objects/index.ts';
import { decodeAlone, Encoded, encodeAlone } from '../wire/index.ts';
import type { ActorHost } from './host.ts';
import { runInside } from './scope.ts';
import { collectRefs } from './session.ts';

interface Hooks {
  restore?: (state: unknown) => unknown;
  start?: () => unknown;
  checkpoint?: () => unknown;
  drain?: () => unknown;
  stop?: () => unknown;
}

/** Runs the constructor, restore() and start(). Rejects with what they throw. */
export async function bringUp(
  type: new (...args: unknown[]) => object,
  args: readonly unknown[],
  checkpoint: EncodedValue | undefined,
): Promise<object> {
  const instance = new type(...args);
  const hooks = instance as Hooks;
  if (checkpoint !== undefined && hooks.restore !== undefined) {
    await hooks.restore(decodeAlone(new Encoded(checkpoint.header, checkpoint.sections)));
  }
  await hooks.start?.();
  return instance;
}

/** Runs a hook if the instance has it, for no longer than `ms`. Never throws: what it throws goes to stderr. */
export async function runHook(host: ActorHost, instance: object | undefined, name: 'drain' | 'stop', ms: number): Promise<void> {
  const hook = (instance as Hooks | undefined)?.[name];
  if (hook === undefined) return;
  await within(ms, (async () => runInside(host.scope, () => hook.call(instance)))()).catch((error) => complain(host, name, error));
}

function complain(host: ActorHost, hook: string, error: unknown): void {
  process.stderr.write(`${hook}() of actor ${host.name} failed: ${(error as Error).stack ?? String(error)}\n`);
}

/** Saves what checkpoint() answers: now, at drain, and in an interval, then preferably while no call is under way. */
export class Checkpoints {
  readonly #host: ActorHost;
  readonly #instance: object;
  readonly #keep: (state: EncodedValue) => void;
  #timer: NodeJS.Timeout | undefined;
  /** A call has run since the last save. */
  dirty = false;
  /** The interval has passed while a call was under way. */
  #due = false;
  #saving: Promise<void> | undefined;

  constructor(host: ActorHost, instance: object, intervalMs: number, keep: (state: EncodedValue) => void) {
    this.#host = host;
    this.#instance = instance;
    this.#keep = keep;
    if (intervalMs > 0) this.#timer = setInterval(() => this.#tick(), intervalMs).unref();
  }

  static wanted(instance: object): boolean {
    return typeof (instance as Hooks).checkpoint === 'function';
  }

  #tick(): void {
    if (!this.dirty) return;
    if (this.#host.busy && !this.#due) this.#due = true;
    else this.#saveInBackground();
  }

  /** No call is under way. */
  idle(): void {
    if (this.#due) this.#saveInBackground();
  }

  #saveInBackground(): void {
    this.save().catch((error) => complain(this.#host, 'checkpoint', error));
  }

  /** Resolves when the state is on its way to the agent. Saves follow each other. */
  save(): Promise<void> {
    const saving = (this.#saving ?? Promise.resolve()).catch(() => {}).then(() => this.#save());
    this.#saving = saving;
    return saving;
  }

  async #save(): Promise<void> {
    this.dirty = false;
    this.#due = false;
    const state = await runInside(this.#host.scope, () => (this.#instance as Required<Hooks>).checkpoint());
    const refs: Ref[] = [];
    const outer = collectRefs(refs);
    try {
      const { header, sections } = encodeAlone(state);
      if (refs.length > 0)
        throw new RuntimeFailure(
          'SINKFLEX_NOT_SERIALIZABLE',
          `the checkpoint of actor ${this.#host.name} holds a ref, whose value would not outlive its owner: await it first`,
        );
      this.#keep({ header, sections });
    } finally {
      collectRefs(outer);
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
