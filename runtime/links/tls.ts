// What a host proves itself with to others, and whom it trusts: PEM files. And the token, which is in a file or in the environment only.
import { readFileSync, statSync } from 'node:fs';
import { RuntimeFailure } from '../api/errors.ts';

/** PEM text. */
export interface TlsFiles {
  cert?: string;
  key?: string;
  /** Who may sign the certificates of others; default: who the system trusts. */
  ca?: string;
}

/** Paths. */
export interface TlsPaths {
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
  tlsCa?: string | undefined;
}

export function readTls(paths: TlsPaths, environment: NodeJS.ProcessEnv = process.env): TlsFiles | undefined {
  const cert = paths.tlsCert ?? environment.SINKFLEX_TLS_CERT;
  const key = paths.tlsKey ?? environment.SINKFLEX_TLS_KEY;
  const ca = paths.tlsCa ?? environment.SINKFLEX_TLS_CA;
  if ((cert === undefined) !== (key === undefined))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'a certificate and its key belong together: give tlsCert and tlsKey, or neither');
  if (cert === undefined && ca === undefined) return undefined;
  return {
    ...(cert === undefined ? {} : { cert: read('tlsCert', cert), key: read('tlsKey', key!) }),
    ...(ca === undefined ? {} : { ca: read('tlsCa', ca) }),
  };
}

function read(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `${option}: ${(cause as Error).message}`, { cause });
  }
}

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
