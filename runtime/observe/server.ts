// The door for observers: a socket in the run's folder, opened by the observers' token. Answers questions from a fixed table; whatever else
// arrives is refused, and bytes that are no frames end that connection only.
import { RuntimeFailure } from '../api/errors.ts';
import { Channel, type ChannelHandler, encodeError, type Listener, listen } from '../wire/index.ts';
import type { ListOptions } from './facts.ts';
import type { LogTail } from './logs.ts';
import type { Observatory } from './observatory.ts';
import { ASK, CANCEL, DONE, FAILED, ITEMS, MORE } from './protocol.ts';

/** Lines that wait for a slow observer. */
const WAITING_LINES = 10_000;
const PORTION_LINES = 1000;

interface Options extends ListOptions {
  name?: string;
  count?: number;
}

type Answer = (observatory: Observatory, options: Options) => unknown;

const answers: Record<string, Answer> = {
  status: (run, options) => run.status(options),
  actors: (run, options) => run.listActors(options),
  tasks: (run, options) => run.listTasks(options),
  objects: (run, options) => run.listObjects(options),
  workers: (run, options) => run.listWorkers(options),
  nodes: (run, options) => run.listNodes(options),
  groups: (run, options) => run.listGroups(options),
  events: (run, options) => run.listEvents(options),
  summary: (run, options) => run.summary(options),
  metrics: (run, options) => run.metrics(options),
  timeline: (run, options) => run.timeline(options),
  tail: (run, { name, count }) => run.tail(named(name), count),
  logs: (run) => run.logs.files(),
};

function named(name: string | undefined): string {
  if (name === undefined) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'the name of an actor is missing');
  return name;
}

function checked(data: unknown): Options {
  const options: Options = {};
  if (data === null || data === undefined) return options;
  if (typeof data !== 'object' || Array.isArray(data)) throw bad('options');
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined || value === null) continue;
    if ((key === 'limit' || key === 'timeoutMs' || key === 'count') && typeof value === 'number' && value >= 0) options[key] = value;
    else if (key === 'name' && typeof value === 'string' && value.length <= 1000) options.name = value;
    else if (key === 'where' && typeof value === 'object' && Object.values(value).every((each) => typeof each === 'string'))
      options.where = value as Record<string, string>;
    else throw bad(key);
  }
  // A timer's largest number; whoever asks for more waits for ever anyway.
  if (options.timeoutMs !== undefined) options.timeoutMs = Math.min(options.timeoutMs, 2 ** 31 - 1);
  return options;
}

function bad(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `an observer sent a question whose ${what.slice(0, 100)} is not well formed`);
}

class Observer implements ChannelHandler {
  readonly #observatory: Observatory;
  /** Request -> what it follows. */
  readonly #following = new Map<number, Follow>();

  constructor(observatory: Observatory) {
    this.#observatory = observatory;
  }

  onMessage(channel: Channel, message: unknown[]): void {
    const [kind, request, name, options] = message;
    if (typeof request !== 'number') throw bad('number');
    switch (kind) {
      case ASK:
        if (typeof name !== 'string') throw bad('name');
        void this.#answer(channel, request, name, options);
        return;
      case MORE:
        this.#following.get(request)?.more();
        return;
      case CANCEL:
        this.#following.get(request)?.stop();
        this.#following.delete(request);
        return;
      default:
        throw bad('kind');
    }
  }

  async #answer(channel: Channel, request: number, name: string, data: unknown): Promise<void> {
    try {
      const options = checked(data);
      if (name === 'follow') {
        channel.send([DONE, request, this.#follow(channel, request, named(options.name), options.count)]);
        return;
      }
      const answer = Object.hasOwn(answers, name) ? answers[name] : undefined;
      if (answer === undefined)
        throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `a run does not answer the question ${JSON.stringify(name.slice(0, 100))}`);
      channel.send([DONE, request, await answer(this.#observatory, options)]);
    } catch (error) {
      channel.send([FAILED, request, encodeError(error)]);
    }
  }

  /** What is there, and from here on what comes: no line is lost or doubled in between. */
  #follow(channel: Channel, request: number, name: string, count: number | undefined): LogTail {
    const observatory = this.#observatory;
    const tail = observatory.tail(name, count);
    this.#following.get(request)?.stop();
    this.#following.set(request, new Follow(observatory, name, (lines, lost) => channel.send([ITEMS, request, lines, lost])));
    return tail;
  }

  onClose(): void {
    for (const follow of this.#following.values()) follow.stop();
    this.#following.clear();
  }
}

/** Lines as they are written: a portion at a time, the next when the observer asks for more; too many waiting are counted and dropped. */
class Follow {
  #waiting: string[] = [];
  #lost = 0;
  #wanted = false;
  readonly #send: (lines: string[], lost: number) => void;
  readonly stop: () => void;

  constructor(observatory: Observatory, actor: string, send: (lines: string[], lost: number) => void) {
    this.#send = send;
    this.stop = observatory.logs.listen(({ name, stream, line }, time) => {
      // Looked up anew each time: a shared actor moves with its restarts.
      if (name !== actor && name !== observatory.logName(actor)) return;
      if (this.#waiting.length >= WAITING_LINES) this.#lost++;
      else this.#waiting.push(`${time} ${stream} ${line}`);
      if (this.#wanted) setImmediate(() => this.#deliver());
    });
  }

  more(): void {
    this.#wanted = true;
    this.#deliver();
  }

  #deliver(): void {
    if (!this.#wanted || this.#waiting.length === 0) return;
    this.#wanted = false;
    const lost = this.#lost;
    this.#lost = 0;
    this.#send(this.#waiting.splice(0, PORTION_LINES), lost);
  }
}

/** Listens for observers until closed. */
export async function serveObservers(folder: string, token: Buffer, observatory: Observatory): Promise<Listener> {
  return listen(folder, token, 'observe', (caller, transport) => new Channel(caller, transport, new Observer(observatory)).open());
}
