// The way to a head in another process: connects, and connects again whenever the connection ends, with growing waits. What is said while
// it is away is not kept: whoever speaks to it says again what matters when it is back.
import type { FromHead, HeadLink, ToHead } from '../control/index.ts';
import { Channel, HEAD, type Transport } from '../wire/index.ts';

const FIRST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 500;
const OPEN_MS = 3000;

export interface HeadConnectionOptions {
  /** One try. */
  connect: () => Promise<Transport>;
  /** Between tries; those that lost the same head do not come back together. */
  random?: () => number;
  /** The head is there, for the first time or again. */
  onUp: () => void;
  onMessage: (message: FromHead) => void;
  /** It has been away for patienceMs: it will not come back. */
  onLost: () => void;
  patienceMs: number;
}

export class HeadConnection implements HeadLink {
  readonly #options: HeadConnectionOptions;
  #channel: Channel | undefined;
  #timer: NodeJS.Timeout | undefined;
  #awaySince = performance.now();
  #closed = false;

  constructor(options: HeadConnectionOptions) {
    this.#options = options;
  }

  get up(): boolean {
    return this.#channel !== undefined;
  }

  /** The first connection; rejects if nobody listens for a while (a head may be on its way back), or the token is wrong. */
  async open(): Promise<void> {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        await this.#connect();
        return;
      } catch (error) {
        const late = performance.now() - this.#awaySince > OPEN_MS;
        if (late || (error as { code?: unknown }).code === 'SINKFLEX_AUTHENTICATION_FAILED') throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }

  async #connect(): Promise<void> {
    const { connect, onMessage, onUp } = this.#options;
    const transport = await connect();
    if (this.#closed) {
      transport.close();
      return;
    }
    const channel = new Channel(HEAD, transport, {
      onMessage: (_, [message]) => onMessage(message as FromHead),
      onClose: (_, error) => {
        if (error !== undefined) process.stderr.write(`[sinkflex] connection to the head closed: ${error.message}\n`);
        if (this.#channel !== channel) return;
        this.#channel = undefined;
        this.#awaySince = performance.now();
        this.#again(FIRST_WAIT_MS);
      },
    });
    this.#channel = channel;
    channel.open();
    onUp();
  }

  #again(waitMs: number): void {
    if (this.#closed) return;
    if (performance.now() - this.#awaySince > this.#options.patienceMs) {
      this.#closed = true;
      this.#options.onLost();
      return;
    }
    this.#timer = setTimeout(
      () => {
        this.#connect().catch(() => this.#again(Math.min(waitMs * 2, LONGEST_WAIT_MS)));
      },
      waitMs * (this.#options.random ?? Math.random)(),
    );
  }

  send(message: ToHead): void {
    this.#channel?.send([message]);
  }

  reconnect(): void {
    this.#channel?.close();
  }

  /** Sends what waits, and ends. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    const channel = this.#channel;
    this.#channel = undefined;
    channel?.close();
  }
}
