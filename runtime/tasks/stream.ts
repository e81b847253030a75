// What a task that is a generator answers: the stream of its runner, as soon as there is one.
import type { ObjectStream } from '../api/types.ts';
import type { TaskCall } from './call.ts';

type Step = IteratorResult<unknown, undefined>;
interface Opened {
  stream: ObjectStream<unknown>;
  /** The runner is free again. */
  over: () => void;
}

const unread = new FinalizationRegistry<Promise<Opened>>((opened) => {
  opened.then(
    ({ stream, over }) => void stream.return().finally(over),
    () => {},
  );
});

export class TaskStream implements ObjectStream<unknown> {
  readonly #opened: Promise<Opened>;
  readonly #call: TaskCall;

  constructor(opened: Promise<Opened>, call: TaskCall) {
    this.#opened = opened;
    this.#call = call;
    opened.catch(() => {}); // whoever reads is told
    unread.register(this, opened, this);
  }

  async next(): Promise<Step> {
    const { stream, over } = await this.#opened;
    try {
      const step = await stream.next();
      if (step.done === true) this.#end(over);
      return step;
    } catch (error) {
      this.#end(over);
      throw error;
    }
  }

  #end(over: () => void): void {
    unread.unregister(this);
    this.#call.settled();
    over();
  }

  async return(): Promise<Step> {
    // Perhaps it has not begun.
    this.#call.cancel();
    const opened = await this.#opened.catch(() => undefined);
    if (opened === undefined) return { done: true, value: undefined };
    const step = await opened.stream.return();
    this.#end(opened.over);
    return step;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
