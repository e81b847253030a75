// A cluster for one run: its head, its agents by whatever launcher, and their end with the run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { chooseRun, RunObserver } from '../../runtime/index.ts';
import { makeCertificates } from '../certs.ts';
import { CommandError } from '../errors.ts';
import { wordsHere } from './agent-words.ts';
import { startHeadProcess } from './head-process.ts';
import { kubernetesLauncher } from './kubernetes.ts';
import type { Certificate, ClusterSettings, HeadPlace, Launcher, PlannedAgent, StartedAgents } from './launcher.ts';
import { localLauncher } from './local.ts';
import { manualLauncher } from './manual.ts';
import { runHere, together } from './processes.ts';
import { keepScaling } from './scaling.ts';
import { slurmLauncher } from './slurm.ts';
import { sshLauncher } from './ssh.ts';

export type { ClusterSettings, Launcher, PlannedAgent } from './launcher.ts';
export { planRun } from './plan.ts';

const LAUNCHERS: Record<NonNullable<ClusterSettings['launcher']>, (settings: ClusterSettings) => Launcher> = {
  local: localLauncher,
  ssh: sshLauncher,
  slurm: slurmLauncher,
  kubernetes: kubernetesLauncher,
  manual: manualLauncher,
};

/** Of settings that name one. */
export function launcherOf(settings: ClusterSettings): Launcher {
  if (settings.launcher === null) throw new Error('no launcher is named');
  if (settings.address !== null)
    throw new CommandError('SINKFLEX_USAGE', 'cluster.address names a cluster that runs, cluster.launcher starts one: give one of them');
  return LAUNCHERS[settings.launcher](settings);
}

/** The agent of this machine, for the trainer and the weights, where the launcher's own are elsewhere. */
export function homeAgent(launcher: Launcher): PlannedAgent | undefined {
  return launcher.headHost === undefined ? undefined : { node: 'home', where: 'this machine', here: true, resources: {} };
}

export interface RunningCluster {
  /** What the run is told of it. */
  readonly settings: Partial<ClusterSettings>;
  /** Resolves with the reason when the run cannot go on. */
  readonly lost: Promise<string>;
  close(): Promise<void>;
}

const loopback = (host: string): boolean => host === 'localhost' || host === '::1' || host.startsWith('127.');

/** Starts the head and the agents of the settings, and waits until all have joined. `note`: what happens, for people. */
export async function startCluster(settings: ClusterSettings, signal: AbortSignal, note: (text: string) => void): Promise<RunningCluster> {
  const launcher = launcherOf(settings);
  const base = mkdtempSync(join(tmpdir(), 'sinkflex-launch-'));
  const folder = join(base, 'head');
  const { headHost } = launcher;
  const secure = headHost !== undefined && !loopback(headHost);
  // openssl writes the authority's files: one certificate after the other.
  let certifying: Promise<unknown> = Promise.resolve();
  const certify = (...names: string[]): Promise<Certificate> => {
    const made = certifying.then(() => makeCertificates(join(base, 'certs'), names));
    certifying = made.catch(() => {});
    return made;
  };
  const open: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const end of open.splice(0).reverse()) await end();
    rmSync(base, { recursive: true, force: true });
  };
  try {
    const tls = secure ? await certify(headHost) : undefined;
    const words = tls === undefined ? [] : ['--tls-ca', tls.ca, '--tls-cert', tls.cert, '--tls-key', tls.key];
    const listen = headHost === undefined ? undefined : `${headHost}:${settings.head_port}`;
    const head = await startHeadProcess({ folder, listen, words, onDeath: (how) => note(`the head died (${how}) and is started again`) });
    const place: HeadPlace = { folder, tokenFile: join(folder, 'token'), url: head.url, certify: secure ? certify : undefined };
    const agents: StartedAgents[] = [];
    open.push(async () => {
      // The head tells its agents to go; what does not is ended.
      await head.stop();
      await Promise.all(agents.map((each) => each.stop()));
    });
    const home = homeAgent(launcher);
    const workersListen = headHost === undefined ? null : `${headHost}:0`;
    if (home !== undefined) {
      const running = runHere([...wordsHere(home, place), ...(workersListen === null ? [] : ['--listen', workersListen])]);
      agents.push(together([{ name: home.node, running }]));
      await running.said;
    }
    const plan = launcher.plan();
    note(`a cluster of ${plan.length + (home === undefined ? 0 : 1)} agents (${settings.launcher})`);
    const started = await launcher.start(plan, place, signal);
    agents.push(started);
    const lost = Promise.race([head.lost, started.lost]);
    const wanted = plan.length + (home === undefined ? 0 : 1);
    await Promise.race([
      joined(folder, wanted, settings.wait_s * 1000, signal),
      lost.then((why) => {
        throw new CommandError('SINKFLEX_LAUNCH', why);
      }),
    ]);
    if (settings.max_agents !== null && launcher.more !== undefined)
      open.push(keepScaling({ folder, launcher, head: place, first: plan.length, most: settings.max_agents, note, signal }));
    const settingsOfRun = { address: folder, ...(workersListen === null ? {} : { listen: workersListen }) };
    return { settings: settingsOfRun, lost: head.lost, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Until so many nodes are up. */
async function joined(folder: string, wanted: number, withinMs: number, signal: AbortSignal): Promise<void> {
  const observer = await RunObserver.attach(chooseRun(folder));
  try {
    for (const end = performance.now() + withinMs; ; await delay(100, undefined, { signal })) {
      const { items } = await observer.ask('nodes');
      if (items.length >= wanted) return;
      if (performance.now() > end)
        throw new CommandError(
          'SINKFLEX_LAUNCH',
          `${items.length} of ${wanted} agents joined within ${withinMs / 1000} s (${items.map(({ node }) => node).join(', ')}): start the others, or ask for fewer (cluster.agents, cluster.wait_s)`,
        );
    }
  } finally {
    observer.close();
  }
}
