// An agent that has joined the head of a cluster: its connection, its own folder, its way to other hosts, its end. Works on while the head is
// away.
import { mkdtempSync, rmSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { nanoid } from 'nanoid';
import { RuntimeFailure } from '../api/errors.ts';
import { HOST_LABEL, hostNameOf } from '../api/host-name.ts';
import type { ActorOutput } from '../api/types.ts';
import { type ChannelBirth, deadline, type FromHead, systemClock } from '../control/index.ts';
import { isClusterUrl } from '../links/index.ts';
import { defaultStoreBytes, makeHostStore } from '../objects/index.ts';
import { LogFolder } from '../observe/logs.ts';
import { Agent } from './agent.ts';
import { nodeCapacity } from './capacity.ts';
import { openPlace, type PlaceOptions } from './cluster-place.ts';
import { HeadConnection } from './head-connection.ts';
import { LeaseCell } from './lease-cell.ts';
import { programsOf, relocate } from './relocate.ts';
import { RouteAsker } from './route-asker.ts';

/** A head that is away for longer will not come back: the node ends. */
const PATIENCE_MS = 600_000;
const DRAIN_MS = 30_000;
/** For the head to answer that it has the node. */
const ACCEPT_MS = 30_000;

export interface JoinOptions extends PlaceOptions {
  /** Name of the node; default the host's name and something unique. Not to be used again after the agent has ended. */
  node?: string;
  /** What it has for placement; default what the machine has. */
  total?: Record<string, number>;
  labels?: Record<string, string>;
  /** Folders of packages whose actors run here, where the driver's host has them elsewhere. This package is found by itself. */
  programs?: readonly string[];
  sharedWorkers?: number;
  maxInFlightBytes?: number;
  channels?: ChannelBirth;
  /** Bytes of shared memory for large values; default 30 % of the machine's. */
  objectStoreMemory?: number;
  /** Where values go that have no room in memory; default its own folder. */
  spillFolder?: string;
  /** Workers record calls. */
  timeline?: boolean;
  onOutput: (line: ActorOutput) => void;
  patienceMs?: number;
}

export interface JoinedAgent {
  readonly node: string;
  readonly agent: Agent;
  /** Settles when it has ended, whatever the reason: told so, drained, or its head lost. */
  readonly ended: Promise<'shutdown' | 'drained' | 'head lost'>;
  /** Goes away in order: nothing is placed here any more, what can move moves, then the rest is ended. */
  drain(graceMs?: number): Promise<void>;
}

/**
 * Resolves when the head has the node: what is spawned from then on may be placed here. Rejects if no head listens there, or the folder is not
 * that of a cluster.
 */
export async function joinHead(options: JoinOptions): Promise<JoinedAgent> {
  const place = openPlace(options);
  const { folder, token } = place;
  const node = options.node ?? `${hostname()}-${nanoid(8)}`;
  const { cpus, gpus, memory } = nodeCapacity();
  const ownFolder = mkdtempSync(join(folder, 'agent-'));
  const logs = new LogFolder(folder);
  const store = makeHostStore(options.objectStoreMemory ?? defaultStoreBytes(), ownFolder, options.spillFolder);
  let finish: (why: 'shutdown' | 'drained' | 'head lost') => void = () => {};
  const ended = new Promise<'shutdown' | 'drained' | 'head lost'>((resolve) => (finish = resolve));
  let closing: Promise<void> | undefined;
  const close = (why: 'shutdown' | 'drained' | 'head lost'): Promise<void> => {
    closing ??= (async () => {
      await agent.close().catch((error) => process.stderr.write(`[sinkflex] ${(error as Error).message}\n`));
      connection.close();
      way?.close();
      lease?.release();
      logs.close();
      store.close();
      rmSync(ownFolder, { recursive: true, force: true });
      place.close();
      finish(why);
    })();
    return closing;
  };
  let draining: Promise<void> | undefined;
  const drain = (graceMs = DRAIN_MS): Promise<void> => {
    draining ??= agent
      .leave(graceMs)
      .catch(() => {}) // close() says so
      .then(() => close('drained'));
    return draining;
  };
  let accept = (): void => {};
  const accepted = new Promise<boolean>((resolve) => (accept = () => resolve(true)));
  const connection = new HeadConnection({
    connect: () => place.connect(),
    patienceMs: options.patienceMs ?? PATIENCE_MS,
    onUp: () => agent.join(),
    onMessage: (message: FromHead) => {
      // What every new node asks for as it joins.
      if (message.t === 'numbers') accept();
      agent.onHead(programs !== undefined && message.t === 'start' ? { ...message, spec: relocate(message.spec, programs) } : message);
    },
    onLost: () => void close('head lost'),
  });
  const programs = isClusterUrl(options.address) ? programsOf(options.programs ?? []) : undefined;
  const asker = new RouteAsker((message, from) => agent.receive(message, from));
  const way = place.way(store.birth, (worker, host, url) => asker.route(worker, host, url));
  // The head cannot reach what runs on another host: that ends by itself before it is placed elsewhere.
  const lease = isClusterUrl(options.address) ? LeaseCell.create() : undefined;
  const agent: Agent = new Agent(
    {
      node,
      total: { cpus, gpus, memory, ...options.total },
      labels: { [HOST_LABEL]: hostNameOf(folder), ...options.labels },
      folder,
      ownFolder,
      token,
      sharedWorkers: options.sharedWorkers ?? 1,
      maxInFlightBytes: options.maxInFlightBytes ?? 2 ** 30,
      ...(options.channels === undefined ? {} : { channels: options.channels }),
      store: store.birth,
      ...(way === undefined ? {} : { way }),
      ...(lease === undefined ? {} : { lease, onFenced: (why: string) => void process.stderr.write(`[sinkflex] ${why}\n`) }),
      warmWorkers: {},
      timeline: options.timeline === true,
      onOutput(line) {
        logs.write(line);
        options.onOutput(line);
      },
      onDrain: (graceMs) => void drain(graceMs),
      onShutdown: () => void close('shutdown'),
    },
    connection,
  );
  agent.onWorkerChange(({ name, pid, isolation }, end) => {
    if (end !== undefined && pid !== undefined && isolation !== 'thread') logs.ended(name, pid);
  });
  try {
    await way?.open();
    await connection.open();
    agent.beat(place.head);
  } catch (cause) {
    connection.close();
    way?.close();
    lease?.release();
    store.close();
    rmSync(ownFolder, { recursive: true, force: true });
    place.close();
    throw place.noHead(cause);
  }
  const late = deadline(systemClock, ACCEPT_MS);
  const known = await Promise.race([accepted, ended.then(() => false), late.over.then(() => false)]);
  late.clear();
  if (!known) {
    await close('head lost');
    throw new RuntimeFailure(
      'SINKFLEX_NO_HEAD',
      `the head of ${place.name} did not take the node in: it ended, or did not answer within ${ACCEPT_MS} ms`,
    );
  }
  return { node, agent, ended, drain };
}
