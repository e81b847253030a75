// Where a cluster is for a process that joins it: a folder of this host, or the door of a head elsewhere; and with it the way to other hosts.
import { readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';
import type { Route, StoreBirth } from '../control/index.ts';
import {
  connectHead,
  findToken,
  HostWay,
  isClusterUrl,
  parseClusterUrl,
  parseListen,
  readTls,
  type TlsFiles,
  type TlsPaths,
} from '../links/index.ts';
import { connect, HEAD, type Transport } from '../wire/index.ts';
import { readToken } from './cluster-folder.ts';
import type { HeadPlace } from './heartbeat.ts';
import { makeRunFolder } from './run-folder.ts';

export interface PlaceOptions extends TlsPaths {
  /** Folder of the head, or its URL. */
  address: string;
  /** The token of a cluster that is on another host; default SINKFLEX_TOKEN_FILE or SINKFLEX_TOKEN. */
  tokenFile?: string | undefined;
  /** `host:port` for other hosts. */
  listen?: string | undefined;
  /** By which others call this host. */
  names?: readonly string[] | undefined;
}

export interface ClusterPlace {
  /** As a person knows it. */
  readonly name: string;
  /** Where the sockets of the workers are: that of the cluster, or one of this process alone. */
  readonly folder: string;
  readonly token: Buffer;
  connect(): Promise<Transport>;
  /** The same for another thread. */
  readonly head: HeadPlace;
  /** The way to other hosts, if the cluster has others. */
  way(store: StoreBirth | undefined, route: (worker: number, host: string, url: string | undefined) => Promise<Route>): HostWay | undefined;
  /** SINKFLEX_NO_HEAD, unless the cause says more. */
  noHead(cause: unknown): unknown;
  /** Removes what it made. */
  close(): void;
}

interface Door extends TlsPaths {
  url: string;
}

export function openPlace(options: PlaceOptions): ClusterPlace {
  return isClusterUrl(options.address) ? placeElsewhere(options) : placeHere(options);
}

function placeElsewhere(options: PlaceOptions): ClusterPlace {
  const { url } = parseClusterUrl(options.address);
  const tls = readTls(options);
  const token = findToken(options.tokenFile);
  const folder = makeRunFolder();
  return {
    name: url,
    folder,
    token,
    connect: () => connectHead(url, token, tls),
    head: { url, tls },
    way: (store, route) => makeWay(options, folder, token, url, tls, store, route),
    noHead: (cause) => noHeadAt(`at ${url}`, `sinkflex head --listen ${url.replace(/^wss?:\/\//, '')}`, cause),
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}

function placeHere(options: PlaceOptions): ClusterPlace {
  const folder = resolve(options.address);
  const token = readToken(folder);
  return {
    name: folder,
    folder,
    token,
    connect: () => connect(folder, token, 0, HEAD),
    head: { folder },
    way(store, route) {
      const door = doorOf(folder);
      if (door === undefined) return undefined;
      return makeWay({ ...door, ...options }, folder, token, door.url, readTls({ ...door, ...options }), store, route);
    },
    noHead: (cause) => noHeadAt(`in ${folder}`, `sinkflex head --folder ${folder}`, cause),
    close: () => {},
  };
}

/** Where the head of that folder listens for other hosts. */
function doorOf(folder: string): Door | undefined {
  try {
    return (JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8')) as { door?: Door }).door;
  } catch {
    return undefined; // it is being written: then its head starts just now
  }
}

function makeWay(
  options: PlaceOptions | (Door & Omit<PlaceOptions, 'address'>),
  folder: string,
  token: Buffer,
  headUrl: string,
  tls: TlsFiles | undefined,
  store: StoreBirth | undefined,
  route: (worker: number, host: string, url: string | undefined) => Promise<Route>,
): HostWay {
  return new HostWay({
    folder,
    // Several processes may share the folder; no longer than the names of workers' sockets.
    socket: join(folder, `g${process.pid}.sock`),
    token,
    tls,
    headUrl,
    listen: options.listen === undefined ? undefined : parseListen(options.listen),
    names: options.names,
    store,
    route,
  });
}

function noHeadAt(where: string, command: string, cause: unknown): unknown {
  const { code } = cause as { code?: unknown };
  if (code === 'SINKFLEX_AUTHENTICATION_FAILED' || code === 'SINKFLEX_TLS_REQUIRED' || code === 'SINKFLEX_BAD_OPTION') return cause;
  return new RuntimeFailure('SINKFLEX_NO_HEAD', `no head listens ${where}: start it with ${command}`, { cause });
}
