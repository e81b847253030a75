// The folder of a cluster with a head of its own: sockets, token, journal. Only this user can enter it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';

/** The cluster's secret: never in an argument list, an environment or a log. */
export function readToken(folder: string): Buffer {
  let text: string;
  try {
    text = readFileSync(join(folder, 'token'), 'utf8');
  } catch (cause) {
    throw new RuntimeFailure('SINKFLEX_NO_HEAD', `${folder} is not the folder of a cluster: sinkflex head makes one`, { cause });
  }
  return Buffer.from(text.trim(), 'hex');
}
