// A head as a process of its own: its folder with token, journal and socket; recovery of what an earlier head of that folder left.
import { randomBytes, randomInt } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { os } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { LivenessTimes } from '../control/index.ts';
import { nobodyListens, parseListen, readTls, type TlsPaths } from '../links/index.ts';
import { readToken } from '../node/index.ts';
import { EventLog, LogFolder, openObservatory, watchCluster } from '../observe/index.ts';
import { HEAD, type Listener, socketPath } from '../wire/index.ts';
import { claimFolder, isClaim } from './claim.ts';
import { Head } from './head.ts';
import { JobDesk } from './jobs.ts';
import { Journal } from './journal.ts';
import { listenForPeers, openDoor } from './listener.ts';
import { HeadState, type ProcessName } from './state.ts';

/** For jobs to end in order with the cluster. */
const JOBS_GRACE_MS = 3000;
/** A socket's path has room for 107 bytes; '/<worker>.sock' needs up to 15. */
const MAX_PATH = 90;

export interface HeadProcess {
  readonly head: Head;
  readonly folder: string;
  /** Actors that were alive when the earlier head ended; 0 for a new cluster. */
  readonly recovered: number;
  /** Where other hosts come in, if they do. */
  readonly url: string | undefined;
  /** Ends every actor and agent, and the cluster: its folder is removed. */
  close(timeoutMs: number): Promise<void>;
}

interface Written extends ProcessName {
  seed: number;
  /** Where it listens for other hosts, and what processes of this one prove themselves with to those. */
  door?: { url: string } & TlsPaths;
}

export interface HeadStart extends TlsPaths {
  liveness?: LivenessTimes;
  metricsPort?: number;
  metricsTokenFile?: string;
  /** `host:port` for other hosts. */
  listen?: string | undefined;
  /** By which others call this host, beside the address that it listens on. */
  names?: readonly string[] | undefined;
}

export async function startHead(folder: string, options: HeadStart = {}): Promise<HeadProcess> {
  if (Buffer.byteLength(folder) > MAX_PATH)
    throw new RuntimeFailure(
      'SINKFLEX_BAD_OPTION',
      `the folder's path is longer than the ${MAX_PATH} bytes that sockets in it allow: ${folder}`,
    );
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  // It is removed at the end, so it must be ours alone.
  const files = readdirSync(folder);
  if (!files.every(isClaim) && !files.includes('head.json'))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `${folder} holds other things: a cluster needs a folder of its own, new or empty`);
  chmodSync(folder, 0o700);
  const self = { pid: process.pid, start: os.processStartTime(process.pid) ?? '' };
  const giveUp = claimFolder(folder, self, os.processRuns);
  try {
    return await lead(folder, self, options, giveUp);
  } catch (error) {
    giveUp();
    throw error;
  }
}

/** The folder is this process's alone. */
async function lead(folder: string, self: ProcessName, options: HeadStart, giveUp: () => void): Promise<HeadProcess> {
  const about = join(folder, 'head.json');
  const earlier = existsSync(about) ? (JSON.parse(readFileSync(about, 'utf8')) as Written) : undefined;
  const seed = earlier?.seed ?? randomInt(2 ** 31);
  const tokenPath = join(folder, 'token');
  if (!existsSync(tokenPath)) writeFileSync(tokenPath, randomBytes(32).toString('hex'), { mode: 0o600 });
  const token = readToken(folder);
  const written: Written = { ...self, seed };
  writeFileSync(about, JSON.stringify(written), { mode: 0o600 });

  const { journal, snapshot, records } = await Journal.open(join(folder, 'journal'));
  const old = snapshot !== undefined || records.length > 0;
  const state = HeadState.restore(seed, snapshot, records);
  const jobs = new JobDesk(folder);
  const head = new Head({
    seed,
    lasting: true,
    jobs,
    journal,
    ...(old ? { state } : {}),
    runs: os.processRuns,
    warn: (line) => void process.stderr.write(`[sinkflex] ${line}\n`),
    // Nobody runs on a node that was given up: its workers die with their agent.
    fence({ pid, start, remote }) {
      if (remote !== true && pid !== process.pid && os.processRuns(pid, start)) process.kill(pid, 'SIGKILL');
    },
    probe: nobodyListens,
    describe: ({ pid, remote }) =>
      remote !== true && ['T', 't'].includes(os.processState(pid) ?? '')
        ? `its agent (process ${pid}) is stopped: kill -CONT ${pid} continues it`
        : undefined,
    ...(options.liveness === undefined ? {} : { liveness: options.liveness }),
  });
  journal.onFailure = (error) => {
    process.stderr.write(`[sinkflex] the head cannot write its journal: ${error.message}\n`);
    process.exit(1);
  };
  rmSync(socketPath(folder, HEAD), { force: true });
  const events = new EventLog();
  events.add('run', 'head', old ? 'started again' : 'started', { pid: process.pid });
  const logs = new LogFolder(folder);
  const source = watchCluster(head, events);
  const { metricsPort, metricsTokenFile } = options;
  const observing = await openObservatory({ folder, source, events, logs, metricsPort, metricsTokenFile });
  const listener: Listener = await listenForPeers(head, folder, token);
  const { listen, names, tlsCert, tlsKey, tlsCa } = options;
  const door =
    listen === undefined
      ? undefined
      : await openDoor(head, { listen: parseListen(listen), names: names ?? [], tls: readTls(options), token });
  if (door !== undefined) {
    const paths = Object.fromEntries(Object.entries({ tlsCert, tlsKey, tlsCa }).filter(([, path]) => path !== undefined));
    writeFileSync(about, JSON.stringify({ ...written, door: { url: door.url, ...paths } }), { mode: 0o600 });
  }
  return {
    head,
    folder,
    recovered: old ? state.living : 0,
    url: door?.url,
    async close(timeoutMs) {
      observing.close();
      await jobs.close(Math.min(timeoutMs, JOBS_GRACE_MS));
      await head.close(timeoutMs, Math.max(0, timeoutMs - 250));
      await head.shutdownPeers(2000);
      head.stop();
      listener.close();
      door?.close();
      await journal.close();
      giveUp();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
