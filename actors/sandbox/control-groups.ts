/**
 * Control groups of sandboxes: limits on memory, processes and processor time of all that a sandbox runs together, and the list of what
 * there is to kill. Version 2, version 1, and both at once (limits by version 1, `cgroup.kill` by version 2).
 */
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';
import type { SandboxLimits } from './types.ts';

const CONTROLLERS = ['memory', 'pids', 'cpu'] as const;
type Controller = (typeof CONTROLLERS)[number];
const PERIOD_US = 100_000;
/** The kernel takes a moment to take the dead out of a group. */
const REMOVE_DEADLINE_MS = 5000;

export interface ControlGroupsPlace {
  /** Where the file systems are mounted. */
  root?: string;
  /** Content of /proc/self/cgroup. */
  own?: string;
}

/** Where groups can be made: a folder of each controller, and one of version 2 for killing. */
export class ControlGroups {
  readonly version: 1 | 2;
  readonly #bases: ReadonlyMap<Controller, string>;
  readonly #unified: string | undefined;

  private constructor(version: 1 | 2, bases: ReadonlyMap<Controller, string>, unified: string | undefined) {
    this.version = version;
    this.#bases = bases;
    this.#unified = unified;
  }

  /** What this process may use; a controller that it may not is missing, and the self-test says so. */
  static find({ root = '/sys/fs/cgroup', own = readOwn() }: ControlGroupsPlace = {}): ControlGroups {
    const paths = new Map<string, string>();
    for (const line of own.split('\n')) {
      const [, names, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
      if (names !== undefined) for (const name of names === '' ? ['unified'] : names.split(',')) paths.set(name, path!);
    }
    if (existsSync(join(root, 'cgroup.controllers'))) {
      const base = delegated(root, paths.get('unified') ?? '/');
      return new ControlGroups(2, new Map(base === undefined ? [] : CONTROLLERS.map((c) => [c, base])), base);
    }
    const bases = new Map<Controller, string>();
    for (const controller of CONTROLLERS) {
      const base = firstUsable([join(root, controller, paths.get(controller) ?? '/')], () => true);
      if (base !== undefined) bases.set(controller, base);
    }
    return new ControlGroups(
      1,
      bases,
      firstUsable([join(root, 'unified', paths.get('unified') ?? '/')], () => true),
    );
  }

  has(controller: Controller): boolean {
    return this.#bases.has(controller);
  }

  /** The group of that name, not made yet. */
  group(name: string): ControlGroup {
    const paths = new Map([...this.#bases].map(([controller, base]) => [controller, join(base, name)]));
    const killing = this.#unified === undefined ? [] : [join(this.#unified, name)];
    return new ControlGroup(this.version, paths, [...new Set([...paths.values(), ...killing])]);
  }
}

export class ControlGroup {
  readonly folders: readonly string[];
  readonly #version: 1 | 2;
  readonly #paths: ReadonlyMap<Controller, string>;

  /** `paths`: the folder of each limit. With `folders` alone it is a group to kill and remove. */
  constructor(version: 1 | 2, paths: ReadonlyMap<Controller, string>, folders: readonly string[]) {
    this.#version = version;
    this.#paths = paths;
    this.folders = folders;
  }

  make(limits: SandboxLimits): void {
    for (const folder of this.folders) mkdirSync(folder);
    const quota = Math.max(1000, Math.round(limits.cpus * PERIOD_US));
    const set = (controller: Controller, file: string, value: string | number, optional = false): void => {
      const folder = this.#paths.get(controller);
      if (folder === undefined || (optional && !existsSync(join(folder, file)))) return;
      writeFileSync(join(folder, file), String(value));
    };
    if (this.#version === 2) {
      set('memory', 'memory.max', limits.memoryBytes);
      set('memory', 'memory.swap.max', 0, true);
      set('memory', 'memory.oom.group', 0, true);
      set('pids', 'pids.max', limits.processes);
      set('cpu', 'cpu.max', `${quota} ${PERIOD_US}`);
    } else {
      set('memory', 'memory.limit_in_bytes', limits.memoryBytes);
      set('memory', 'memory.memsw.limit_in_bytes', limits.memoryBytes, true);
      set('pids', 'pids.max', limits.processes);
      set('cpu', 'cpu.cfs_period_us', PERIOD_US);
      set('cpu', 'cpu.cfs_quota_us', quota);
    }
  }

  /** Files that a process writes its id to in order to enter. */
  joinFiles(): string[] {
    return this.folders.map((folder) => join(folder, 'cgroup.procs'));
  }

  /** What is in force, as the kernel says it: bytes, processes, cores. undefined: no such limit. */
  limits(): { memory?: number; processes?: number; cpus?: number } {
    const out: { memory?: number; processes?: number; cpus?: number } = {};
    const [memory, pids, cpu] = [this.#paths.get('memory'), this.#paths.get('pids'), this.#paths.get('cpu')];
    const number = (text: string): number | undefined => (/^\d+$/.test(text) ? Number(text) : undefined);
    const put = (key: keyof typeof out, value: number | undefined) => {
      if (value !== undefined) out[key] = value;
    };
    if (memory !== undefined) put('memory', number(read(join(memory, this.#version === 2 ? 'memory.max' : 'memory.limit_in_bytes'))));
    if (pids !== undefined) put('processes', number(read(join(pids, 'pids.max'))));
    if (cpu !== undefined) {
      const [quota, period] =
        this.#version === 2
          ? read(join(cpu, 'cpu.max')).split(' ')
          : [read(join(cpu, 'cpu.cfs_quota_us')), read(join(cpu, 'cpu.cfs_period_us'))];
      const [q, p] = [number(quota ?? ''), number(period ?? '')];
      put('cpus', q === undefined || !p ? undefined : q / p);
    }
    return out;
  }

  /** Everything that is in any of its folders. */
  pids(): number[] {
    const all = new Set<number>();
    for (const folder of this.folders)
      for (const line of read(join(folder, 'cgroup.procs')).split('\n')) if (line !== '') all.add(Number(line));
    return [...all];
  }

  /** How often the kernel killed something of it for want of memory. */
  oomKills(): number {
    const memory = this.#paths.get('memory');
    if (memory === undefined) return 0;
    const text = read(join(memory, this.#version === 2 ? 'memory.events' : 'memory.oom_control'));
    return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
  }

  /** How often a process was refused. */
  refusedForks(): number {
    const pids = this.#paths.get('pids');
    return pids === undefined ? 0 : Number(/^max (\d+)$/m.exec(read(join(pids, 'pids.events')))?.[1] ?? 0);
  }

  kill(): void {
    for (const folder of this.folders) {
      const file = join(folder, 'cgroup.kill');
      // Version 2 since Linux 5.14.
      if (!existsSync(file)) continue;
      try {
        writeFileSync(file, '1');
      } catch {
        // Removed meanwhile.
      }
    }
    this.killExcept();
  }

  killExcept(keep?: number): void {
    for (const pid of this.pids()) {
      if (pid === keep || pid === process.pid) continue;
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // Gone meanwhile.
      }
    }
  }

  /** Kills what is left, waits until it is empty, removes it. False where it would not go. */
  async remove(): Promise<boolean> {
    const until = performance.now() + REMOVE_DEADLINE_MS;
    for (let pause = 1; ; pause = Math.min(50, pause * 2)) {
      if (this.pids().length > 0) this.kill();
      const left = this.folders.filter((folder) => !removed(folder));
      if (left.length === 0) return true;
      if (performance.now() > until) return false;
      await after(pause);
    }
  }
}

function readOwn(): string {
  return read('/proc/self/cgroup');
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}

function removed(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (e) {
    return (e as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/** The nearest group at or above its own whose children have the controllers; it may be one's own to hand on (systemd's Delegate=). */
function delegated(root: string, own: string): string | undefined {
  const candidates: string[] = [];
  for (let path = join(root, own); path.startsWith(root); path = dirname(path)) candidates.push(path);
  return firstUsable(candidates, (base, probe) => {
    if (CONTROLLERS.every((c) => existsSync(join(probe, c === 'pids' ? 'pids.max' : `${c}.max`)))) return true;
    try {
      writeFileSync(join(base, 'cgroup.subtree_control'), CONTROLLERS.map((c) => `+${c}`).join(' '));
    } catch {
      return false;
    }
    return CONTROLLERS.every((c) => existsSync(join(probe, c === 'pids' ? 'pids.max' : `${c}.max`)));
  });
}

let probes = 0;

/** The first folder in which a group can be made that is as it must be. */
function firstUsable(folders: readonly string[], fits: (folder: string, probe: string) => boolean): string | undefined {
  for (const folder of folders) {
    const probe = join(folder, `sinkflex-probe-${process.pid}-${probes++}`);
    try {
      accessSync(folder, constants.W_OK);
      mkdirSync(probe);
    } catch {
      continue;
    }
    try {
      if (fits(folder, probe)) return folder;
    } finally {
      removed(probe);
    }
  }
  return undefined;
}
