// Memory limits of worker processes. What counts is anonymous memory: heaps, buffers, stacks; shared objects have limits of their own. The
// monitor looks a few times a second; where this user may make memory control groups (v1 or v2), each limited worker gets one: the
// account then includes what it started, and a burst between two looks ends in that group and nowhere else.
import { mkdirSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { os } from '../../kernels/host.ts';

const PAGE = 4096;
const PREFIX = 'sinkflex-';
const pattern = /^sinkflex-(\d+)-(\d+)-\d+$/;

/** undefined: no such process. */
export function anonymousBytes(pid: number): number | undefined {
  try {
    const [, resident, shared] = readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ');
    return (Number(resident) - Number(shared)) * PAGE;
  } catch {
    return undefined;
  }
}

function field(path: string, name: RegExp): number | undefined {
  try {
    const match = name.exec(readFileSync(path, 'latin1'));
    return match === null ? undefined : Number(match[1]);
  } catch {
    return undefined;
  }
}

/** Anonymous bytes of all processes in a group: `anon` in v2, `total_rss` in v1. */
export function groupBytes(group: string): number | undefined {
  return field(join(group, 'memory.stat'), /^(?:anon|total_rss) (\d+)$/m);
}

/** How often the kernel killed in that group for want of memory. */
export function groupKills(group: string): number {
  return field(join(group, 'memory.events'), /^oom_kill (\d+)$/m) ?? field(join(group, 'memory.oom_control'), /^oom_kill (\d+)$/m) ?? 0;
}

export interface MemoryController {
  version: 1 | 2;
  /** Folder of the group that this process is in. */
  own: string;
  /** Where groups of ours can be made. */
  parent: string;
}

/** Where the memory controller is mounted for this process; undefined: nowhere. `root` is another one in tests. */
export function memoryController(root = '/'): MemoryController | undefined {
  let groups: string;
  try {
    groups = readFileSync(join(root, 'proc/self/cgroup'), 'latin1');
  } catch {
    return undefined;
  }
  const base = join(root, 'sys/fs/cgroup');
  const v1 = /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/m.exec(groups)?.[1];
  if (v1 !== undefined) {
    // In a container the path is that of the host, and the mount shows its own group as the root.
    for (const own of [join(base, 'memory', v1), join(base, 'memory')]) if (isFolder(own)) return { version: 1, own, parent: own };
    return undefined;
  }
  const v2 = /^0::(.*)$/m.exec(groups)?.[1];
  if (v2 === undefined) return undefined;
  const own = [join(base, v2), base].find((folder) => isFolder(folder));
  if (own === undefined) return undefined;
  // A group with processes in it cannot have limited children (v2), except the root of all: so ours are its siblings.
  return { version: 2, own, parent: own === base ? own : join(own, '..') };
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** The control groups of one run. Where none can be made, it answers so once and stays silent. */
export class MemoryGroups {
  readonly #controller: MemoryController | undefined;
  readonly #name: string;
  readonly #reserve: number;
  #refused = false;

  constructor(controller: MemoryController | undefined = memoryController(), reserve: number = totalmem() * 0.3) {
    this.#controller = controller;
    this.#name = `${PREFIX}${process.pid}-${os.processStartTime(process.pid) ?? '0'}`;
    this.#reserve = reserve;
  }

  /** What the paths of all its groups begin with. */
  get prefix(): string | undefined {
    return this.#controller === undefined ? undefined : join(this.#controller.parent, `${this.#name}-`);
  }

  /**
   * A group for a worker with that limit, for it to enter; undefined: not here. The kernel counts shared memory, too, so its bound is
   * looser by a quarter and by what the object store may take.
   */
  make(worker: number, bytes: number): string | undefined {
    if (this.#controller === undefined || this.#refused) return undefined;
    const { version, parent } = this.#controller;
    const group = join(parent, `${this.#name}-${worker}`);
    try {
      mkdirSync(group);
    } catch {
      this.#refused = true;
      return undefined;
    }
    try {
      const bound = String(Math.ceil((bytes * 1.25 + this.#reserve) / PAGE) * PAGE);
      writeFileSync(join(group, version === 1 ? 'memory.limit_in_bytes' : 'memory.max'), bound);
      return group;
    } catch {
      this.#refused = true;
      this.remove(group);
      return undefined;
    }
  }

  /** Of the group that this process is in itself: kills there hit workers without a group, too. */
  ownKills(): number {
    return this.#controller === undefined ? 0 : groupKills(this.#controller.own);
  }

  remove(group: string, tries = 5): void {
    try {
      rmdirSync(group);
    } catch (error) {
      // The kernel may take a moment to empty it.
      if ((error as NodeJS.ErrnoException).code === 'EBUSY' && tries > 0) setTimeout(() => this.remove(group, tries - 1), 50).unref();
    }
  }
}

/** Removes the groups of runs whose process is gone. Answers their names. */
export function sweepMemoryGroups(controller: MemoryController | undefined = memoryController()): string[] {
  if (controller === undefined) return [];
  const swept: string[] = [];
  let names: string[];
  try {
    names = readdirSync(controller.parent);
  } catch {
    return [];
  }
  for (const name of names) {
    const match = pattern.exec(name);
    if (match === null || os.processStartTime(Number(match[1])) === match[2]) continue;
    try {
      rmdirSync(join(controller.parent, name));
      swept.push(name);
    } catch {
      // Somebody else's, or something still runs in it.
    }
  }
  return swept;
}

/** The accounts of one agent: groups of its workers, and whether the kernel has killed any of them. */
export class MemoryAccounts {
  readonly groups: MemoryGroups;
  #kills: number;

  constructor(groups: MemoryGroups = new MemoryGroups()) {
    this.groups = groups;
    this.#kills = groups.ownKills();
  }

  /** Each kill that the kernel counted explains one death. */
  wasKernelKill(group: string | undefined): boolean {
    if (group !== undefined && groupKills(group) > 0) return true;
    if (this.groups.ownKills() <= this.#kills) return false;
    this.#kills++;
    return true;
  }
}
