// What workers write: cut into lines, handed on, and the last of stderr kept for the report of their death.
import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

const KEPT_LINES = 20;
const MAX_LINE = 8192;

export class OutputLines {
  readonly last: string[] = [];
  #decoder = new StringDecoder('utf8');
  #rest = '';
  #onLine: (line: string) => void;
  /** The stream has ended: nothing more will come. */
  ended = false;

  constructor(stream: Readable, onLine: (line: string) => void, onEnd: () => void) {
    this.#onLine = onLine;
    stream.on('data', (chunk: Buffer) => this.#take(this.#decoder.write(chunk)));
    stream.on('error', () => {});
    stream.once('close', () => {
      if (this.#rest !== '') this.#line(this.#rest);
      this.#rest = '';
      this.ended = true;
      onEnd();
    });
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop()!;
    for (const line of lines) this.#line(line);
    while (this.#rest.length > MAX_LINE) {
      this.#line(this.#rest.slice(0, MAX_LINE));
      this.#rest = this.#rest.slice(MAX_LINE);
    }
  }

  #line(line: string): void {
    this.last.push(line.slice(0, MAX_LINE));
    if (this.last.length > KEPT_LINES) this.last.shift();
    this.#onLine(line);
  }
}
