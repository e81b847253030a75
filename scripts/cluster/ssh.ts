// Agents on hosts that are reached over ssh. Each gets this package as a bundle (once; it is named by its content), and the token and its
// certificate in a folder of its own, which goes with the agent. Nothing else is needed there but Node, tar and a shell.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { CommandError } from '../errors.ts';
import { resourcesOf, wordsThere } from './agent-words.ts';
import { BUNDLE_MANIFEST, type Bundle, makeBundle } from './bundle.ts';
import type { ClusterSettings, HeadPlace, Launcher, PlannedAgent } from './launcher.ts';
import { type Running, runCommand, runToEnd, startTogether } from './processes.ts';

const PROGRAMS = '"$HOME"/.cache/sinkflex/programs';
const CLUSTERS = '"$HOME"/.cache/sinkflex/clusters';

interface Host {
  /** As in the settings. */
  text: string;
  /** What ssh is given. */
  target: string;
  /** As other hosts call it. */
  name: string;
  port: string | undefined;
}

function parseHost(text: string): Host {
  const match = /^(?:([^@\s-][^@\s]*)@)?(\[[0-9a-fA-F:]+\]|[^@:\s-][^@:\s]*)(?::(\d+))?$/.exec(text);
  if (match === null)
    throw new CommandError('SINKFLEX_USAGE', `cluster.hosts: ${JSON.stringify(text)} is not [user@]host or [user@]host:port`);
  const [, user, host = '', port] = match;
  const name = host.replace(/^\[|\]$/g, '');
  return { text, target: user === undefined ? name : `${user}@${name}`, name, port };
}

export function sshLauncher(settings: ClusterSettings): Launcher {
  const hosts = settings.hosts.map(parseHost);
  if (hosts.length === 0) throw new CommandError('SINKFLEX_USAGE', 'cluster.launcher=ssh wants hosts: cluster.hosts=[user@a,user@b]');
  const of = (agent: PlannedAgent): Host => hosts.find(({ text }) => text === agent.where)!;
  return {
    headHost: settings.head_host ?? hostname(),
    plan: () =>
      hosts
        .slice(0, settings.agents ?? hosts.length)
        .map(({ text, name }, i) => ({ node: `${name}-${i}`, where: text, here: false, resources: resourcesOf(settings) })),
    async start(agents, head, signal) {
      const bundle = await makeBundle();
      return startTogether(agents, async (agent) => {
        const there = new Remote(of(agent), settings, signal);
        await there.check();
        await there.ship(bundle);
        return there.agent(agent, bundle.hash, head);
      });
    },
  };
}

/** One host. */
class Remote {
  readonly #host: Host;
  readonly #settings: ClusterSettings;
  readonly #signal: AbortSignal;

  constructor(host: Host, settings: ClusterSettings, signal: AbortSignal) {
    this.#host = host;
    this.#settings = settings;
    this.#signal = signal;
  }

  /** The words of ssh for a command of the shell there. */
  #words(command: string): string[] {
    const { target, port } = this.#host;
    // A host that hangs is noticed; nobody is there to type a password.
    const usual = ['-T', '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10', '-o', 'ServerAliveInterval=5', '-o', 'ServerAliveCountMax=3'];
    return [...this.#settings.ssh_options, ...usual, ...(port === undefined ? [] : ['-p', port]), '--', target, command];
  }

  #run(command: string, input?: NodeJS.ReadableStream): ReturnType<typeof runToEnd> {
    return runToEnd('ssh', this.#words(command), { launcher: 'ssh', input, signal: this.#signal });
  }

  async #must(command: string, what: string, input?: NodeJS.ReadableStream): Promise<string> {
    const { code, out, errors } = await this.#run(command, input);
    if (code !== 0) throw this.#failed(what, errors.trim() || `exit code ${code}`);
    return out;
  }

  #failed(what: string, why: string): CommandError {
    return new CommandError('SINKFLEX_LAUNCH', `${what} on ${this.#host.text} failed: ${why.split('\n').slice(-3).join(' | ')}`);
  }

  /** The bundle holds native code: a machine of another kind cannot run it. */
  async check(): Promise<void> {
    const ask = 'process.stdout.write([process.platform,process.arch,parseInt(process.versions.node)>=20].join(" "))';
    const is = await this.#must(`${quote(this.#settings.node_path)} -e ${quote(ask)}`, `${this.#settings.node_path} (cluster.node_path)`);
    const wanted = `${process.platform} ${process.arch} true`;
    if (is.trim() !== wanted)
      throw this.#failed('running this program', `it is ${is.trim()} (platform, architecture, Node 20 or later), not ${wanted}`);
  }

  async ship({ hash, pack }: Bundle): Promise<void> {
    const { code } = await this.#run(`test -e ${PROGRAMS}/${hash}/${BUNDLE_MANIFEST}`);
    if (code === 0) return;
    const part = `${PROGRAMS}/.${hash}-${randomBytes(6).toString('hex')}`;
    const whole = `${PROGRAMS}/${hash}`;
    const tar = pack();
    await this.#must(
      // Another may have been quicker; the name says that it is the same.
      `umask 077; mkdir -p ${part} && tar -xf - -C ${part} && { mv -T ${part} ${whole} 2>/dev/null || rm -rf ${part}; } && test -e ${whole}/${BUNDLE_MANIFEST}`,
      'unpacking the program',
      tar.stdout!,
    );
  }

  async agent(agent: PlannedAgent, hash: string, head: HeadPlace): Promise<Running> {
    const { name } = this.#host;
    const certificate = await head.certify?.(name);
    const folder = `${CLUSTERS}/${randomBytes(9).toString('hex')}`;
    const local = mkdtempSync(join(tmpdir(), 'sinkflex-secrets-'));
    try {
      copyFileSync(head.tokenFile, join(local, 'token'));
      if (certificate !== undefined)
        for (const each of ['ca', 'cert', 'key'] as const) copyFileSync(certificate[each], join(local, `${each}.pem`));
      const tar = spawn('tar', ['-cf', '-', '-C', local, '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
      await this.#must(
        `umask 077; mkdir -p ${folder} && tar -xf - --no-same-owner -C ${folder} && chmod 700 ${folder} && chmod 600 ${folder}/*`,
        'handing over the token',
        tar.stdout,
      );
    } finally {
      rmSync(local, { recursive: true, force: true });
    }
    const tls = certificate === undefined ? undefined : { ca: './ca.pem', cert: './cert.pem', key: './key.pem' };
    // A head on loopback has its agents there too.
    const host = tls === undefined ? '127.0.0.1' : name;
    const words = wordsThere(agent, head, { host, tokenFile: './token', tls }).map(quote).join(' ');
    const program = `${PROGRAMS}/${hash}/dist/scripts/sinkflex.js`;
    // Its secrets go with it, however it ends.
    const command = `cd ${folder} && { ${quote(this.#settings.node_path)} ${program} ${words}; code=$?; cd /; rm -rf ${folder}; exit $code; }`;
    return runCommand('ssh', this.#words(command));
  }
}

/** One word for a shell. */
const quote = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;
