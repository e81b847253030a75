// A cluster for one scenario: head, agents and driver as processes of their own, on loopback or each host in a network namespace; the head is
// started again when it ends. Afterwards nothing of it may be left.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sweepFolder } from '../../runtime/node/run-folder.ts';
import { makeCertificates } from '../../scripts/certs.ts';
import type { Namespaces } from '../runtime/fixtures/namespaces.ts';

const PORT = 7400;
const hostProcess = fileURLToPath(new URL('../runtime/fixtures/cluster-process.js', import.meta.url));
const job = fileURLToPath(new URL('./job.js', import.meta.url));
/** Children of children are found by it. */
const MARK = 'SINKFLEX_FAULT_SCENARIO';

/** For each step of its end. */
const END_MS = 30_000;
/** Those that were away when the head ended have not heard of it. */
const HEARD_MS = 8000;
const OWN_FILES = ['certs', 'order.json'];

interface Running {
  child: ChildProcess;
  errors: () => string;
  line(): Promise<Record<string, unknown>>;
}

export class FaultCluster {
  readonly base: string;
  readonly folder: string;
  readonly #net: Namespaces | undefined;
  readonly #headBackMs: number | 'never';
  readonly #children = new Set<ChildProcess>();
  readonly #tls = new Map<string, Record<string, string>>();
  #url = '';
  #head: Running | undefined;
  #closing = false;
  #errors = '';

  private constructor(base: string, net: Namespaces | undefined, headBackMs: number | 'never') {
    this.base = base;
    this.folder = join(base, 'c');
    this.#net = net;
    this.#headBackMs = headBackMs;
  }

  static async start(
    net: Namespaces | undefined,
    headBackMs: number | 'never' = 100,
    prepare: (folder: string) => void = () => {},
  ): Promise<FaultCluster> {
    const cluster = new FaultCluster(mkdtempSync(join(tmpdir(), 'sf-f-')), net, headBackMs);
    try {
      mkdirSync(cluster.folder, { mode: 0o700 });
      prepare(cluster.folder);
      await cluster.#begin();
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  async #begin(): Promise<void> {
    if (this.#net !== undefined) {
      for (const host of ['home', 'east', 'west']) {
        const { ca, cert, key } = await makeCertificates(join(this.base, 'certs'), [this.#net.address(host)]);
        this.#tls.set(host, { SINKFLEX_TLS_CA: ca, SINKFLEX_TLS_CERT: cert, SINKFLEX_TLS_KEY: key });
      }
    }
    this.#url = await this.#startHead();
    await Promise.all(['home', 'east', 'west'].map((node) => this.#startAgent(node)));
  }

  #address(host: string, port: number): string {
    return `${this.#net?.address(host) ?? '127.0.0.1'}:${port}`;
  }

  async #startHead(): Promise<string> {
    // Agents come back to where it was.
    const port = this.#net !== undefined ? PORT : this.#url === '' ? 0 : Number(new URL(this.#url).port);
    const head = this.#run('home', hostProcess, ['head', this.folder, this.#address('home', port)]);
    this.#head = head;
    head.child.once('exit', () => {
      if (this.#closing || this.#headBackMs === 'never' || this.#url === '') return;
      setTimeout(() => {
        if (!this.#closing) this.#startHead().catch(() => {}); // its end is told by the same event
      }, this.#headBackMs);
    });
    return (await head.line()).url as string;
  }

  async #startAgent(node: string): Promise<void> {
    // On the host of the head it joins the folder: its process can be seen there, and needs no lease.
    const away = ['agent', this.#url, node, join(this.folder, 'token')];
    const words = node === 'home' ? ['agent', this.folder, node] : this.#net === undefined ? away : [...away, this.#address(node, 0)];
    await this.#run(node, hostProcess, words).line();
  }

  /** The driver, with its order in that file. */
  drive(orderFile: string): Running {
    const words = [this.#url, join(this.folder, 'token'), orderFile];
    return this.#run('home', job, this.#net === undefined ? words : [...words, this.#address('home', 0)]);
  }

  #run(host: string, program: string, words: string[]): Running {
    const own = [process.execPath, program, ...words] as const;
    const [command, rest] = this.#net?.inside(host, own[0], own.slice(1)) ?? [own[0], own.slice(1)];
    const env: NodeJS.ProcessEnv = { ...process.env, ...this.#tls.get(host), [MARK]: this.base, TMPDIR: this.base };
    delete env.NODE_OPTIONS;
    const child = spawn(command, rest, { stdio: ['ignore', 'pipe', 'pipe'], env });
    this.#children.add(child);
    let text = '';
    let ended = false;
    let wake = (): void => {};
    child.stdout!.on('data', (chunk) => {
      text += chunk;
      wake();
    });
    child.stderr!.on('data', (chunk) => (this.#errors = `${this.#errors}${chunk}`.slice(-20_000)));
    child.once('exit', () => {
      ended = true;
      wake();
    });
    return {
      child,
      errors: () => this.#errors,
      line: async () => {
        while (!text.includes('\n')) {
          if (ended) throw new Error(`${words[0]} on ${host} has ended: ${this.#errors.slice(-2000)}`);
          await new Promise<void>((resolve) => (wake = resolve));
        }
        const at = text.indexOf('\n');
        const line = text.slice(0, at);
        text = text.slice(at + 1);
        return JSON.parse(line) as Record<string, unknown>;
      },
    };
  }

  /** Ends it in order, as SIGTERM to a head does. Answers what is left of it: processes that had to be killed or outlived that, and files. */
  async close(): Promise<string[]> {
    this.#closing = true;
    const alive = (): ChildProcess[] => [...this.#children].filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null);
    const head = this.#head?.child;
    if (head !== undefined && head.exitCode === null) head.kill('SIGTERM');
    else for (const child of alive()) child.kill('SIGTERM');
    await within(HEARD_MS, () => alive().length === 0);
    // One that was away when the head ended waits for the next.
    for (const child of alive()) child.kill('SIGTERM');
    await within(END_MS, () => alive().length === 0);
    const stubborn = alive();
    for (const child of stubborn) child.kill('SIGKILL');
    await within(END_MS, () => this.processes().length === 0);
    // What a process leaves that was killed, the next one sweeps.
    sweepFolder(this.base);
    const files = readdirSync(this.base).filter((file) => !OWN_FILES.includes(file));
    return [...stubborn.map(({ spawnargs }) => `had to be killed: ${spawnargs.slice(1).join(' ')}`), ...this.processes(), ...files];
  }

  /** Those that still run, by what they were started with. */
  processes(): string[] {
    return readdirSync('/proc').flatMap((pid) => {
      if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return [];
      try {
        if (!readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`${MARK}=${this.base}\0`)) return [];
        return [`${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')}`];
      } catch {
        return [];
      }
    });
  }

  remove(): void {
    rmSync(this.base, { recursive: true, force: true });
  }
}

async function within(ms: number, isSo: () => boolean): Promise<void> {
  for (const end = Date.now() + ms; !isSo() && Date.now() < end; ) await new Promise((resolve) => setTimeout(resolve, 20));
}
