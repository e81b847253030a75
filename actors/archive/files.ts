/**
 * Files to and from a bucket. Both ways can be repeated: what is there with the same checksum is left alone, an upload in parts goes on with
 * the parts that are missing, a download with the bytes that are.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ActorsError } from '../errors.ts';
import type { S3 } from './s3.ts';

/** Larger files go in parts of this size; S3 wants at least 5 MiB of all parts but the last, and at most 10,000 of them. */
const PART_BYTES = 16 * 1024 * 1024;
const MOST_PARTS = 10_000;

/** Stores a file as it is now (one that grows meanwhile: what stands in it); false where the same is there. */
export async function upload(s3: S3, key: string, path: string, partBytes = PART_BYTES): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const sha256 = await checksum(file, size);
    if ((await s3.head(key))?.sha256 === sha256) return false;
    if (size <= partBytes) await s3.put(key, await slice(file, 0, size), sha256);
    else await uploadInParts(s3, key, { file, size, sha256, partBytes: Math.max(partBytes, Math.ceil(size / MOST_PARTS)) });
    return true;
  } finally {
    await file.close();
  }
}

interface Large {
  file: FileHandle;
  size: number;
  sha256: string;
  partBytes: number;
}

async function uploadInParts(s3: S3, key: string, large: Large): Promise<void> {
  const pending = await s3.pendingUpload(key);
  if (pending !== undefined) {
    await sendParts(s3, key, pending, large, await s3.parts(key, pending));
    // It was begun for a file of that name that has changed since: its checksum is the old one's.
    if ((await s3.head(key))?.sha256 === large.sha256) return;
  }
  await sendParts(s3, key, await s3.beginUpload(key, large.sha256), large, new Map());
}

/** `arrived`: ETags of parts by number. The ETag of a part is its MD5; where it is not (some encryptions), the part is sent again. */
async function sendParts(s3: S3, key: string, uploadId: string, large: Large, arrived: ReadonlyMap<number, string>): Promise<void> {
  const { file, size, partBytes } = large;
  const etags: string[] = [];
  for (let from = 0; from < size; from += partBytes) {
    const part = etags.length + 1;
    const bytes = await slice(file, from, Math.min(from + partBytes, size));
    const there = arrived.get(part);
    const same = there?.replaceAll('"', '') === createHash('md5').update(bytes).digest('hex');
    etags.push(same ? there! : await s3.putPart(key, uploadId, part, bytes));
  }
  await s3.completeUpload(key, uploadId, etags);
}

/** Fetches an object into a file, whole or not there; false where the same stands there. SINKFLEX_ARCHIVE where it is not what was stored. */
export async function download(s3: S3, key: string, path: string, partBytes = PART_BYTES): Promise<boolean> {
  const object = await s3.head(key);
  if (object === undefined) throw new ActorsError('SINKFLEX_ARCHIVE', `there is no ${key} in the archive`);
  if (existsSync(path) && object.sha256 !== undefined && (await checksumOf(path)) === object.sha256) return false;
  mkdirSync(dirname(path), { recursive: true });
  const partial = `${path}.part`;
  const file = await open(partial, 'a+');
  try {
    for (let at = Math.min((await file.stat()).size, object.bytes); at < object.bytes; ) {
      const bytes = await s3.get(key, { from: at, to: Math.min(at + partBytes, object.bytes), etag: object.etag });
      await file.appendFile(bytes);
      at += bytes.length;
    }
    await file.sync();
  } finally {
    await file.close();
  }
  if (object.sha256 !== undefined && (await checksumOf(partial)) !== object.sha256) {
    rmSync(partial);
    throw new ActorsError('SINKFLEX_ARCHIVE', `${key} is not what was stored (its SHA-256 differs): fetch it again, or take another copy`);
  }
  renameSync(partial, path);
  return true;
}

async function checksumOf(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    return await checksum(file, (await file.stat()).size);
  } finally {
    await file.close();
  }
}

async function checksum(file: FileHandle, size: number): Promise<string> {
  const hash = createHash('sha256');
  const step = 1 << 20;
  for (let at = 0; at < size; at += step) hash.update(await slice(file, at, Math.min(at + step, size)));
  return hash.digest('hex');
}

async function slice(file: FileHandle, from: number, to: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(to - from);
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, from + done);
    if (bytesRead === 0) throw new ActorsError('SINKFLEX_ARCHIVE', 'a file became shorter while it was stored');
    done += bytesRead;
  }
  return bytes;
}
