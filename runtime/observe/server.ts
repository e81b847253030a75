// The door for observers: a socket in the run's folder, opened by the observers' token. Answers questions from a fixed table; whatever else
// arrives is refused, and bytes that are no frames end that connection only.
import { Channel, type ChannelHandler, encodeError, type Listener, listen } from '../wire/index.ts';
import { answerQuestion, checkOptions, malformed, named, type Options } from './answers.ts';
import type { LogReader } from './log-reader.ts';
import type { LogTail } from './logs.ts';
import type { Observatory } from './observatory.ts';
import { ASK, CANCEL, DONE, FAILED, ITEMS, MORE } from './protocol.ts';

/** How often a log that is followed is looked at. */
const LOOK_MS = 100;
const PORTION_LINES = 1000;

class Observer implements ChannelHandler {
  readonly #observatory: Observatory;
  /** Request -> what it follows. */
  readonly #following = new Map<number, Follow>();

  constructor(observatory: Observatory) {
    this.#observatory = observatory;
  }

  onMessage(channel: Channel, message: unknown[]): void {
    const [kind, request, name, options] = message;
    if (typeof request !== 'number') throw malformed('number');
    switch (kind) {
      case ASK:
        if (typeof name !== 'string') throw malformed('name');
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
        throw malformed('kind');
    }
  }

  async #answer(channel: Channel, request: number, name: string, data: unknown): Promise<void> {
    try {
      const options = checkOptions(data);
      const answer = name === 'follow' ? this.#follow(channel, request, options) : answerQuestion(this.#observatory, name, options);
      channel.send([DONE, request, await answer]);
    } catch (error) {
      channel.send([FAILED, request, encodeError(error)]);
    }
  }

  /** What is there, and from here on what comes: no line is lost or doubled in between. */
  async #follow(channel: Channel, request: number, { name, count }: Options): Promise<LogTail> {
    const { tail, reader } = await this.#observatory.openLog(named(name), count);
    this.#following.get(request)?.stop();
    if (!channel.closed)
      this.#following.set(request, new Follow(this.#observatory, reader, (lines, gaps) => channel.send([ITEMS, request, lines, gaps])));
    return tail;
  }

  onClose(): void {
    for (const follow of this.#following.values()) follow.stop();
    this.#following.clear();
  }
}

/** Lines as they are written: a portion at a time, the next when the observer asks for more. What waits is in the files. */
class Follow {
  #wanted = false;
  #gaps = 0;
  readonly #observatory: Observatory;
  readonly #reader: LogReader;
  readonly #send: (lines: string[], gaps: number) => void;
  readonly #timer: NodeJS.Timeout;

  constructor(observatory: Observatory, reader: LogReader, send: (lines: string[], gaps: number) => void) {
    this.#observatory = observatory;
    this.#reader = reader;
    this.#send = send;
    this.#timer = setInterval(() => this.#deliver(), LOOK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  more(): void {
    this.#wanted = true;
    this.#deliver();
  }

  #deliver(): void {
    if (!this.#wanted) return;
    this.#observatory.logs.flush();
    const lines = this.#reader.read(PORTION_LINES);
    if (lines.length === 0) return;
    this.#wanted = false;
    this.#send(lines, this.#reader.gaps - this.#gaps);
    this.#gaps = this.#reader.gaps;
  }
}

/** Listens for observers until closed. */
export async function serveObservers(folder: string, token: Buffer, observatory: Observatory): Promise<Listener> {
  return listen(folder, token, 'observe', (caller, transport) => new Channel(caller, transport, new Observer(observatory)).open());
}
