// Weight images as files: in parts, since an image may be larger than an ArrayBuffer can be.
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** Bytes of an image that are copied or written at once. */
const PART_BYTES = 2 ** 28;

export function* parts(total: number): Generator<[at: number, bytes: number]> {
  for (let at = 0; at < total; at += PART_BYTES) yield [at, Math.min(PART_BYTES, total - at)];
}

export function* imageParts(image: { view(offset: number, bytes: number): Uint8Array }, total: number): Generator<Uint8Array> {
  for (const [at, bytes] of parts(total)) yield image.view(at, bytes);
}

/** The file appears whole and synced, or not at all. */
export function writeWhole(dir: string, name: string, content: Iterable<Uint8Array>): void {
  const part = join(dir, `.${name}.part-${process.pid}`);
  try {
    const fd = openSync(part, 'w');
    try {
      for (const part of content) for (let done = 0; done < part.length; ) done += writeSync(fd, part, done);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(part, join(dir, name));
  } catch (e) {
    rmSync(part, { force: true });
    throw e;
  }
  const folder = openSync(dir, 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
