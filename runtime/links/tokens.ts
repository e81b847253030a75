// Secrets that are in a file or in the environment only: the token of a cluster, and that of readers of metrics.
import { readFileSync, statSync } from 'node:fs';
import { RuntimeFailure } from '../api/errors.ts';

const TOKEN = /^[0-9a-fA-F]{64,}$/;

/** The one line of a file that nobody else can read. */
function readSecret(path: string): string {
  try {
    if ((statSync(path).mode & 0o077) !== 0)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `others can read the token in ${path}: chmod 600 it`);
    return readFileSync(path, 'utf8').trim();
  } catch (cause) {
    if (cause instanceof RuntimeFailure) throw cause;
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the token cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** What a reader of metrics shows; from the file, or else from SINKFLEX_METRICS_TOKEN_FILE. Undefined: neither is given. */
export function findMetricsToken(file: string | undefined, environment: NodeJS.ProcessEnv = process.env): string | undefined {
  const path = file ?? environment.SINKFLEX_METRICS_TOKEN_FILE;
  if (path === undefined) return undefined;
  const token = readSecret(path);
  // Visible characters only: it travels in a header.
  if (!/^[!-~]{32,}$/.test(token))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the token in ${path} is not one line of at least 32 characters without spaces`);
  return token;
}

/** From the file, or else from SINKFLEX_TOKEN_FILE or SINKFLEX_TOKEN, which children of this process do not inherit. */
export function findToken(file: string | undefined, environment: NodeJS.ProcessEnv = process.env): Buffer {
  const path = file ?? environment.SINKFLEX_TOKEN_FILE;
  const given = environment.SINKFLEX_TOKEN;
  delete environment.SINKFLEX_TOKEN;
  let text = given;
  if (path !== undefined) text = readSecret(path);
  if (text === undefined)
    throw new RuntimeFailure(
      'SINKFLEX_BAD_OPTION',
      'a cluster on another host wants its token: copy <folder of the head>/token and name it with tokenFile (--token-file) or SINKFLEX_TOKEN_FILE',
    );
  if (!TOKEN.test(text)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'the token is not at least 64 hexadecimal digits');
  return Buffer.from(text, 'hex');
}
