// What a host proves itself with to others, and whom it trusts: PEM files.
import { readFileSync } from 'node:fs';
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
