// Where run folders are made.
import { tmpdir } from 'node:os';

/** A socket's path has room for 107 bytes; '/s/<worker>.sock' needs up to 18. */
const MAX_PATH = 88;

export function runFolderBase(): string {
  const preferred = tmpdir();
  return preferred.length + 45 <= MAX_PATH ? preferred : '/tmp';
}
