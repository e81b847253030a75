// Reads the log of one name from its files, whoever writes them: everything so far, then what is added. Follows a file when it is moved to
// make room, and finds the files of new incarnations.
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { type LogFile, listLogs } from './logs.ts';

const CHUNK = 256 * 1024;

interface Place {
  /** The file that was read, whatever it is called now. */
  inode: number;
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
    for (const { path } of this.files) this.#readLog(path, lines, limit);
    return lines;
  }

  #readLog(path: string, lines: string[], limit: number): void {
    const before = inodeOf(`${path}.1`);
    const now = inodeOf(path);
    let place = this.#places.get(path);
    if (place !== undefined && place.inode !== now && place.inode !== before) {
      this.gaps++; // moved away twice
      place = undefined;
    }
    if (place?.inode !== now && before !== undefined) {
      place ??= this.#begin(path, before);
      if (place.inode === before && !readFile(`${path}.1`, place, lines, limit)) return;
    }
    if (now === undefined) return;
    if (place?.inode !== now) place = this.#begin(path, now);
    readFile(path, place, lines, limit);
  }

  #begin(path: string, inode: number): Place {
    const place = { inode, offset: 0, rest: Buffer.alloc(0) };
    this.#places.set(path, place);
    return place;
  }
}

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}

/** Takes lines up to the limit; true: there are no more. */
function readFile(file: string, place: Place, lines: string[], limit: number): boolean {
  let fd: number;
  try {
    fd = openSync(file, 'r');
  } catch {
    return true;
  }
  try {
    const { ino, size } = fstatSync(fd);
    if (ino !== place.inode) return false; // moved this very moment
    while (lines.length < limit) {
      const bytes = Buffer.alloc(Math.min(CHUNK, size - place.offset));
      const read = bytes.length === 0 ? 0 : readSync(fd, bytes, 0, bytes.length, place.offset);
      if (read === 0) return true;
      place.offset += read;
      const all = Buffer.concat([place.rest, bytes.subarray(0, read)]);
      const end = all.lastIndexOf(0x0a);
      place.rest = all.subarray(end + 1);
      if (end >= 0) for (const line of all.toString('utf8', 0, end).split('\n')) lines.push(line);
    }
    return false;
  } finally {
    closeSync(fd);
  }
}
