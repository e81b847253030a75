// Reads the log of one name from its files, whoever writes them: everything so far, then what is added, in the next file when one is full,
// and in the files of new incarnations.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { type LogFile, listLogs, partPath } from './logs.ts';

const CHUNK = 256 * 1024;

interface Place {
  /** Number of the file. */
  part: number;
  offset: number;
  /** The begun line at the end. */
  rest: Buffer;
}

export class LogReader {
  readonly #folder: string;
  readonly #name: string;
  readonly #places = new Map<string, Place>();
  /** How often lines had to make room before they were read. */
  gaps = 0;

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.#name = name;
  }

  get files(): LogFile[] {
    return listLogs(this.#folder).filter(({ name }) => name === this.#name);
  }

  /** Lines that have come since the last call, at most about so many; a line is there when its end is. */
  read(limit = Number.POSITIVE_INFINITY): string[] {
    const lines: string[] = [];
    for (const { path, parts } of this.files) {
      const newest = parts.at(-1)!;
      this.#readLog(newest === 0 ? path : path.slice(0, -`.${newest}`.length), parts, lines, limit);
    }
    return lines;
  }

  #readLog(path: string, parts: readonly number[], lines: string[], limit: number): void {
    let place = this.#places.get(path);
    if (place !== undefined && place.part < parts[0]!) {
      this.gaps++;
      place = undefined;
    }
    if (place === undefined) {
      place = { part: parts[0]!, offset: 0, rest: Buffer.alloc(0) };
      this.#places.set(path, place);
    }
    while (lines.length < limit) {
      readFile(partPath(path, place.part), place, lines, limit);
      if (lines.length >= limit || place.part >= parts.at(-1)!) return;
      // It has a successor, so nothing is added to it any more.
      place.part++;
      place.offset = 0;
    }
  }
}

/** Takes lines up to the limit. */
function readFile(file: string, place: Place, lines: string[], limit: number): void {
  let fd: number;
  try {
    fd = openSync(file, 'r');
  } catch {
    return; // just made room
  }
  try {
    const { size } = fstatSync(fd);
    while (lines.length < limit && place.offset < size) {
      const bytes = Buffer.alloc(Math.min(CHUNK, size - place.offset));
      const read = readSync(fd, bytes, 0, bytes.length, place.offset);
      if (read === 0) return;
      place.offset += read;
      const all = Buffer.concat([place.rest, bytes.subarray(0, read)]);
      const end = all.lastIndexOf(0x0a);
      place.rest = all.subarray(end + 1);
      if (end >= 0) for (const line of all.toString('utf8', 0, end).split('\n')) lines.push(line);
    }
  } finally {
    closeSync(fd);
  }
}
