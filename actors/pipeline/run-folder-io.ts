// Writing files so that a reader, or a crash, never sees half of one; and what the operating system's refusals mean to a user.
import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { SinkflexError } from '../../kernels/index.ts';

/** A run folder, or a file in it, cannot be used. */
export class RunFolderError extends SinkflexError {
  constructor(
    code: 'SINKFLEX_OUTPUT_UNWRITABLE' | 'SINKFLEX_OUTPUT_EXISTS' | 'SINKFLEX_DISK_FULL' | 'SINKFLEX_RESUME',
    message: string,
    details: Record<string, unknown>,
    cause?: unknown,
  ) {
    super(code, message, { details, cause });
    this.name = 'RunFolderError';
  }
}

/** The typed error behind a failed file operation; errors of ours pass through. */
export function ioError(error: unknown, path: string): Error {
  if (error instanceof SinkflexError) return error;
  const errno = (error as NodeJS.ErrnoException).code ?? 'unknown';
  if (errno === 'ENOSPC' || errno === 'EDQUOT') {
    return new RunFolderError(
      'SINKFLEX_DISK_FULL',
      `no space left to write ${path}; free some, or choose another disk with --output`,
      { path, errno },
      error,
    );
  }
  if (['EACCES', 'EPERM', 'EROFS', 'ENOTDIR', 'ENOENT', 'EISDIR', 'ENAMETOOLONG', 'ELOOP'].includes(errno)) {
    return new RunFolderError(
      'SINKFLEX_OUTPUT_UNWRITABLE',
      `cannot write ${path} (${errno}); choose a folder that you may write to with --output`,
      { path, errno },
      error,
    );
  }
  return error instanceof Error ? error : new Error(String(error));
}

/** Replaces a file as a whole: temporary file beside it, fsync, rename, fsync of the folder. On failure the old file stands untouched. */
export function atomicWrite(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.tmp-${process.pid}`;
  try {
    const fd = openSync(temporary, 'w');
    try {
      const bytes = typeof content === 'string' ? Buffer.from(content) : content;
      for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
    syncFolder(dirname(path));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw ioError(error, path);
  }
}

/** A file that only grows, by whole pieces: a piece that does not fit on the disk is taken back. */
export class AppendFile {
  readonly path: string;
  #fd: number;
  #size: number;
  constructor(path: string, content?: Uint8Array) {
    this.path = path;
    if (content !== undefined) atomicWrite(path, content);
    try {
      this.#fd = openSync(path, 'a');
    } catch (error) {
      throw ioError(error, path);
    }
    this.#size = fstatSync(this.#fd).size;
  }
  append(piece: Uint8Array): void {
    try {
      for (let done = 0; done < piece.length; ) done += writeSync(this.#fd, piece, done);
      this.#size += piece.length;
    } catch (error) {
      const failure = ioError(error, this.path);
      try {
        ftruncateSync(this.#fd, this.#size);
      } catch {
        // A reader drops what is torn; the first error is the one to tell.
      }
      throw failure;
    }
  }
  close(): void {
    if (this.#fd < 0) return;
    fsyncSync(this.#fd);
    closeSync(this.#fd);
    this.#fd = -1;
  }
}

/** Makes renames and new names in a folder durable. */
export function syncFolder(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
