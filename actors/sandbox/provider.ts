/**
 * Sandboxes of this machine: each in control groups and whatever its launcher keeps it in, with a pool of started ones. Nothing is handed
 * out before the self-test has found every limit in force.
 */
import type { Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { nanoid } from 'nanoid';
import { ActorsError, didYouMean } from '../errors.ts';
import { ControlGroups } from './control-groups.ts';
import { Janitor } from './janitor.ts';
import { ENVIRONMENT, type Launched, type Launcher } from './launch.ts';
import { DEFAULT_GRACE_MS, MachineSandbox } from './machine-sandbox.ts';
import { StartQueue, WarmPool } from './pool.ts';
import { examine } from './self-test.ts';
import { Slots } from './slots.ts';
import {
  DEFAULT_LIMITS,
  type Sandbox,
  type SandboxInfo,
  type SandboxLimits,
  type SandboxOptions,
  type SandboxProvider,
  type SandboxStats,
  type SelfTestReport,
} from './types.ts';

export interface MachineProviderOptions {
  limits?: Partial<SandboxLimits>;
  /** Sandboxes kept started and unused. 0 by default: each is started when it is asked for. */
  warm?: number;
  /** JavaScript can be run, and a Node is kept started in each sandbox. */
  javascript?: boolean;
  /** Limits that may be missing, by name; everything else missing is a refusal. */
  waive?: readonly string[];
  /** How long after a program's deadline the supervisor may take to say so, before it is helped and then given up; 2 seconds by default. */
  graceMs?: number;
  /** Where the slots are written down. */
  stateFolder?: string;
}

/** What a self-test reports, by name. */
export const LIMIT_NAMES = [
  'capabilities',
  'syscalls',
  'namespaces',
  'network',
  'read-only',
  'files',
  'disk',
  'descriptors',
  'environment',
  'supervisor',
  'user',
  'memory',
  'processes',
  'cpu',
  'deadline',
] as const;

/** From the start of its processes to its first word. */
const START_TIMEOUT_MS = 20_000;
const DEFAULT_TTL_MS = 3_600_000;

export class MachineSandboxProvider implements SandboxProvider {
  readonly name: string;
  readonly limits: Readonly<SandboxLimits>;
  readonly #o: MachineProviderOptions;
  readonly #slots: Slots;
  readonly #groups = ControlGroups.find();
  readonly #prefix = `sinkflex-sandbox-${process.pid}-${nanoid(8)}`;
  readonly #open = new Map<string, MachineSandbox>();
  readonly #starting = new StartQueue(Math.max(2, availableParallelism()));
  readonly #counts = { created: 0, hits: 0, lost: 0 };
  readonly #launcher: Launcher;
  #janitor: Janitor | undefined;
  readonly #warm: WarmPool<MachineSandbox>;
  readonly #enforced: string[] = [];
  #report: Promise<SelfTestReport> | undefined;
  #closed = false;
  #started = 0;

  constructor(launcher: Launcher, o: MachineProviderOptions = {}) {
    this.name = launcher.provider;
    this.#launcher = launcher;
    this.#o = o;
    this.limits = { ...DEFAULT_LIMITS, ...o.limits };
    for (const name of o.waive ?? []) {
      if ((LIMIT_NAMES as readonly string[]).includes(name)) continue;
      const near = didYouMean(name, LIMIT_NAMES);
      throw new ActorsError(
        'SINKFLEX_SANDBOX_OPTION',
        `waive: there is no limit "${name}"${near ? `; did you mean "${near}"?` : ` (${LIMIT_NAMES.join(', ')})`}`,
        {
          details: { option: 'waive', value: name },
        },
      );
    }
    this.#slots = new Slots(o.stateFolder);
    this.#warm = new WarmPool(o.warm ?? 0, () => this.#start());
  }

  async create(options: SandboxOptions = {}): Promise<Sandbox> {
    const report = await this.selfTest();
    if (!report.ok) throw this.#refusal(report);
    this.#counts.created++;
    for (;;) {
      const taken = this.#warm.take();
      const starting = taken?.thing ?? this.#start();
      this.#warm.refill();
      const sandbox = await starting;
      // One that ended while it waited.
      if (!this.#open.has(sandbox.id)) continue;
      if (taken?.ready) this.#counts.hits++;
      Object.assign(sandbox.info.labels, options.labels);
      setTimeout(() => void sandbox.close(), options.ttlMs ?? DEFAULT_TTL_MS).unref();
      return sandbox;
    }
  }

  list(): SandboxInfo[] {
    return [...this.#open.values()].map((s) => s.info);
  }

  async destroy(id: string): Promise<boolean> {
    const sandbox = this.#open.get(id);
    await sandbox?.close();
    return sandbox !== undefined;
  }

  selfTest(): Promise<SelfTestReport> {
    this.#report ??= this.#selfTest();
    // What could not be asked may be asked again; what was answered stays.
    this.#report.catch(() => {
      this.#report = undefined;
    });
    return this.#report;
  }

  stats(): SandboxStats {
    const { created, hits, lost } = this.#counts;
    const warm = this.#warm.ready;
    return { open: this.#open.size - warm, warm, created, hits, misses: created - hits, hitRate: created === 0 ? 0 : hits / created, lost };
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#warm.close();
    await Promise.all([...this.#open.values()].map((s) => s.close()));
    await this.#janitor?.close();
  }

  async #selfTest(): Promise<SelfTestReport> {
    this.#prepare();
    await this.#slots.sweep();
    let sandbox: MachineSandbox;
    try {
      sandbox = await this.#start();
    } catch (e) {
      // Such as a machine that lets nobody make namespaces.
      return {
        provider: this.name,
        ok: false,
        limits: [{ limit: 'start', enforced: false, found: (e as Error).message }],
        missing: ['start'],
      };
    }
    try {
      const limits = await examine({
        exec: (request) => sandbox.exec(request),
        limits: this.limits,
        group: sandbox.group,
        supervisor: sandbox.supervisor(),
        environment: Object.keys(ENVIRONMENT),
        isolation: this.#launcher.isolation,
        groupLimits: this.#launcher.groupLimits(this.limits),
      });
      const missing = limits.filter((l) => !l.enforced && !this.#o.waive?.includes(l.limit)).map((l) => l.limit);
      this.#enforced.push(...limits.filter((l) => l.enforced).map((l) => l.limit));
      if (missing.length === 0) this.#warm.refill();
      return { provider: this.name, ok: missing.length === 0, limits, missing };
    } finally {
      await sandbox.close();
    }
  }

  #prepare(): void {
    const { folder } = this.#slots;
    if (this.#janitor) return;
    this.#launcher.prepare({
      limits: this.limits,
      javascript: this.#o.javascript ?? false,
      addressSpace: !this.#groups.has('memory'),
      ownFolder: join(folder, this.#prefix),
      stateFolder: folder,
    });
    this.#janitor = new Janitor({ folder, prefix: this.#prefix, groups: this.#groups.group(this.#prefix).folders });
  }

  #start(): Promise<MachineSandbox> {
    return this.#starting.run(() => this.#startNow());
  }

  async #startNow(): Promise<MachineSandbox> {
    if (this.#closed) throw new ActorsError('SINKFLEX_SANDBOX_LOST', 'the sandbox provider is closed');
    const group = this.#groups.group(`${this.#prefix}-${this.#started++}`);
    const slot = this.#slots.take(group.folders);
    const id = nanoid(12);
    let sandbox: MachineSandbox | undefined;
    let launched: Launched | undefined;
    try {
      group.make(this.#launcher.groupLimits(this.limits));
      launched = this.#launcher.launch({ id, uid: slot.uid, joinFiles: group.joinFiles() }, (why) => sandbox?.ended(why));
      sandbox = new MachineSandbox({
        launched,
        group,
        graceMs: this.#o.graceMs ?? DEFAULT_GRACE_MS,
        info: { id, provider: this.name, isolation: this.#launcher.isolation, createdAt: Date.now(), labels: {}, enforced: this.#enforced },
        onGone: (removed) => {
          this.#open.delete(id);
          // A slot whose processes would not go is nobody's until a sweep.
          if (removed) slot.release();
        },
        onLost: () => {
          this.#counts.lost++;
        },
      });
      this.#open.set(id, sandbox);
      let late: NodeJS.Timeout | undefined;
      try {
        await Promise.race([
          launched.channel.next(),
          new Promise((_, reject) => {
            late = setTimeout(() => reject(new Error(`it said nothing within ${START_TIMEOUT_MS / 1000} s`)), START_TIMEOUT_MS);
          }),
        ]);
      } finally {
        clearTimeout(late);
      }
      // Sandboxes that wait keep nobody's process alive; what is asked of them has deadlines that do.
      launched.child.unref();
      for (const stream of launched.child.stdio) (stream as Partial<Socket> | null)?.unref?.();
      return sandbox;
    } catch (cause) {
      const said = launched?.complaint() ?? '';
      if (sandbox) await sandbox.destroy();
      else {
        await group.remove();
        slot.release();
      }
      const why = `${cause instanceof Error ? cause.message : String(cause)}${said === '' ? '' : `: ${said}`}`;
      throw new ActorsError('SINKFLEX_SANDBOX_LOST', `a sandbox did not start: ${why}`, { cause, details: { id } });
    }
  }

  #refusal(report: SelfTestReport): ActorsError {
    const what = report.limits.filter((l) => report.missing.includes(l.limit)).map((l) => `${l.limit} (${l.found})`);
    return new ActorsError(
      'SINKFLEX_SANDBOX_UNSAFE',
      `the ${this.name} sandbox would not hold: not in force: ${what.join('; ')}; nothing untrusted was run`,
      { details: { missing: report.missing } },
    );
  }
}
