// Where clusters of several hosts listen and are found: `host:port` to listen on, `ws://` and `wss://` URLs to go to. Off loopback only wss.
import { isIP } from 'node:net';
import { RuntimeFailure } from '../api/errors.ts';

export interface HostPort {
  host: string;
  port: number;
}

/** Whether an address of init() or of an agent is that of a listener, not a folder. */
export function isClusterUrl(address: string): boolean {
  return /^[a-z]+:\/\//i.test(address);
}

/** Nobody but this host gets there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/** `host:port`, `[v6]:port`; port 0 is any free one. */
export function parseListen(text: string): HostPort {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]/\s]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || port > 65_535 || (match?.[1] !== undefined && isIP(host) !== 6))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `listen is host:port, like 127.0.0.1:7400 or [::1]:7400, not ${JSON.stringify(text)}`);
  return { host, port };
}

export const hostPort = ({ host, port }: HostPort): string => `${host.includes(':') ? `[${host}]` : host}:${port}`;

export interface ClusterUrl extends HostPort {
  secure: boolean;
  /** Without a path. */
  url: string;
}

/** Of a listener. Nothing secret belongs into it: what is in a URL ends in logs. */
export function parseClusterUrl(text: string): ClusterUrl {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw bad('it is no URL');
  }
  if (url.username !== '' || url.password !== '')
    throw bad('secrets do not belong into a URL: the token comes from a file or the environment');
  if (url.protocol !== 'ws:' && url.protocol !== 'wss:') throw bad(`${url.protocol}// is neither ws:// nor wss://`);
  if (url.search !== '' || url.hash !== '' || (url.pathname !== '/' && url.pathname !== ''))
    throw bad('it has more than a host and a port');
  const secure = url.protocol === 'wss:';
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (secure ? 443 : 80) : Number(url.port);
  if (!secure && !isLoopback(host))
    throw new RuntimeFailure(
      'SINKFLEX_TLS_REQUIRED',
      `ws:// is for this host alone: to reach ${host}, listen with a certificate there and use wss://`,
    );
  return { host, port, secure, url: `${url.protocol}//${hostPort({ host, port })}` };
}

// The text is not repeated: it may hold what should not be seen.
function bad(why: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_BAD_OPTION', `the address of a cluster is its folder, or ws://host:port or wss://host:port: ${why}`);
}
