// A cluster that outlives its drivers: a head and agents as processes of their own. `sinkflex head` and `sinkflex agent` are these functions.
import { resolve } from 'node:path';
import type { HeadProcess } from '../head/index.ts';
import type { JoinedAgent } from '../node/index.ts';
import { bad, checkKnown, checkTimeout, count, type Known } from './check.ts';
import { checkChannels, checkStore, checkTotal, placeOptions } from './options.ts';
import type { ActorOutput, ChannelOptions, ResourceOptions } from './types.ts';

export interface HeadOptions {
  /** Folder of the cluster: sockets, token, journal. Made if it is not there; what an earlier head left in it is taken up again. */
  folder: string;
  /** Port on loopback for Prometheus and health, as in init(). */
  metricsPort?: number;
  /** File (mode 0600) with the token of the metrics listener; default SINKFLEX_METRICS_TOKEN_FILE, or else a new token each run. */
  metricsTokenFile?: string;
  /** `host:port` where other hosts join. Off loopback a certificate is needed. Default: this host alone. */
  listen?: string;
  /** Names by which other hosts call this one, beside the address that it listens on. */
  names?: readonly string[];
  /** PEM files: certificate and key of this host, and who may have signed those of others. */
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
}

const AGENT: Known<AgentOptions> = {
  cpus: true,
  gpus: true,
  memory: true,
  resources: true,
  address: true,
  tokenFile: true,
  listen: true,
  names: true,
  tlsCert: true,
  tlsKey: true,
  tlsCa: true,
  node: true,
  labels: true,
  programs: true,
  sharedWorkers: true,
  channels: true,
  objectStoreMemory: true,
  spillFolder: true,
  timeline: true,
  onOutput: true,
};

/** A running head. */
export interface RunningHead {
  readonly folder: string;
  /** Actors that an earlier head of the folder had, and that this one looks after now. */
  readonly recovered: number;
  /** Where other hosts join, if they may. */
  readonly url: string | undefined;
  /** The end of the cluster: every actor and agent ends, and the folder is removed. */
  close(options?: { timeoutMs?: number }): Promise<void>;
}

export interface AgentOptions extends ResourceOptions {
  /** Folder of the head, or the URL where it listens for other hosts. */
  address: string;
  /** File with the token of a cluster on another host; default SINKFLEX_TOKEN_FILE, or the token itself in SINKFLEX_TOKEN. */
  tokenFile?: string;
  /** `host:port` where workers of other hosts find those of this one. Default: a free port of loopback if the head is there, else they are gone to. */
  listen?: string;
  /** Names by which other hosts call this one, beside the address that it listens on. */
  names?: readonly string[];
  /** PEM files: certificate and key of this host, and who may have signed those of others. */
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
  /** Name of the node, for `strategy: { node }`; default the host's name and something unique. */
  node?: string;
  labels?: Record<string, string>;
  /** Folders of packages whose actors run here, where the driver's host has them under another path. This package is found by itself. */
  programs?: readonly string[];
  /** Worker processes that actors with isolation `shared` are spread over. Default 1. */
  sharedWorkers?: number;
  /** Of its workers: how long channels stay open without use. */
  channels?: Pick<ChannelOptions, 'idleMs'>;
  /** Bytes of shared memory for large values of all workers of this node, at least 2^20. Default 30 % of the machine's memory. */
  objectStoreMemory?: number;
  /** A folder that is there, for values that memory has no room for; default the node's own folder inside the head's. */
  spillFolder?: string;
  /** Workers of this node record calls, as with init({ timeline: true }). */
  timeline?: boolean;
  /** Where lines that actors write go; default this process's stderr with a `[name pid]` prefix. */
  onOutput?: (line: ActorOutput) => void;
}

/** An agent that has joined. */
export interface RunningAgent {
  readonly node: string;
  /** Settles when it has ended, and says why. */
  readonly ended: Promise<'shutdown' | 'drained' | 'head lost'>;
  /** Leaves in order: actors that may be restarted move to other nodes, with their drain() and checkpoint(); the rest ends after timeoutMs. */
  drain(options?: { timeoutMs?: number }): Promise<void>;
}

/**
 * Starts a head in this process. It owns no actor and runs no code of yours: agents join it, drivers use it with `init({ address })`. When it
 * is killed, calls go on; started again on the same folder, it finds every actor that still lives.
 *
 * @example
 * const head = await startHead({ folder: '/run/user/1000/cluster' });
 */
export async function startHead(options: HeadOptions): Promise<RunningHead> {
  checkKnown('startHead', options, {
    folder: true,
    metricsPort: true,
    metricsTokenFile: true,
    listen: true,
    names: true,
    tlsCert: true,
    tlsKey: true,
    tlsCa: true,
  });
  if (typeof options.folder !== 'string' || options.folder === '') bad('folder', options.folder, 'the path of a folder');
  const { startHead: start } = await import('../head/index.ts'); // not for workers, which import this file too
  const { folder, metricsPort, metricsTokenFile, names, ...rest } = options;
  const head: HeadProcess = await start(resolve(folder), {
    ...placeOptions(rest),
    ...(names === undefined ? {} : { names }),
    ...(metricsPort === undefined ? {} : { metricsPort }),
    ...(metricsTokenFile === undefined ? {} : { metricsTokenFile }),
  });
  return {
    folder: head.folder,
    recovered: head.recovered,
    url: head.url,
    close: async (given = {}) => head.close(checkTimeout('close of a head', given) ?? 5000),
  };
}

/**
 * Makes this process a node of the cluster: the agent that starts and watches its workers.
 *
 * @example
 * const node = await joinHead({ address: '/run/user/1000/cluster', cpus: 4, labels: { disk: 'fast' } });
 * await node.ended;
 */
export async function joinHead(options: AgentOptions): Promise<RunningAgent> {
  checkKnown('joinHead', options, AGENT);
  const { address, node, labels, programs, sharedWorkers, names, timeline = false, onOutput = toStderr } = options;
  if (typeof address !== 'string' || address === '') bad('address', address, 'the folder of a head, or its URL');
  const store = checkStore(options);
  const { joinHead: join } = await import('../node/index.ts');
  const agent: JoinedAgent = await join({
    ...placeOptions(options),
    address,
    total: checkTotal(options),
    onOutput,
    timeline,
    ...store,
    ...(names === undefined ? {} : { names }),
    ...(node === undefined ? {} : { node }),
    ...(labels === undefined ? {} : { labels }),
    ...(programs === undefined ? {} : { programs: programs.map((folder) => resolve(folder)) }),
    ...(options.channels === undefined ? {} : { channels: checkChannels(options.channels) }),
    ...(sharedWorkers === undefined ? {} : { sharedWorkers: count('sharedWorkers', sharedWorkers, 1, 1) }),
  });
  return { node: agent.node, ended: agent.ended, drain: async (given = {}) => agent.drain(checkTimeout('drain of a node', given)) };
}

const toStderr = ({ name, pid, line }: ActorOutput): void => void process.stderr.write(`[${name} ${pid}] ${line}\n`);
