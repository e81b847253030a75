/**
 * Slots: each sandbox has one, and as root a user id with it. A slot is a small file that says whose it is, so that whoever starts next can
 * clear away what a killed owner left: its processes, control groups and the file itself.
 */
import { linkSync, lstatSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { os } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { ControlGroup } from './control-groups.ts';

/** User ids of sandboxes where root starts them: FIRST_UID + slot. */
export const FIRST_UID = 60000;
/** Below 65534, which is nobody. */
export const SLOTS = 4096;

interface SlotRecord {
  pid: number;
  startTime: string;
  /** Of the boot: process ids begin anew with it. */
  boot: string;
  /** Folders of its control group. */
  groups: readonly string[];
}

export interface Slot {
  number: number;
  uid: number;
  release(): void;
}

export class Slots {
  readonly folder: string;
  #next = 0;

  /** `folder`: where the files are; by default one of this user's own that nobody else can write. */
  constructor(folder = defaultFolder()) {
    this.folder = folder;
  }

  take(groups: readonly string[]): Slot {
    const record: SlotRecord = { pid: process.pid, startTime: os.processStartTime(process.pid) ?? '', boot: boot(), groups };
    for (let tried = 0; tried < SLOTS; tried++) {
      const number = this.#next;
      this.#next = (this.#next + 1) % SLOTS;
      const path = join(this.folder, `slot-${number}`);
      try {
        writeFileSync(path, JSON.stringify(record), { flag: 'wx', mode: 0o600 });
      } catch (e) {
        if ((e as NodeJS.ErrnoException).code === 'EEXIST') continue;
        throw e;
      }
      return { number, uid: FIRST_UID + number, release: () => remove(path) };
    }
    throw new ActorsError('SINKFLEX_SANDBOX_LOST', `all ${SLOTS} sandbox slots of this machine are taken`, { details: { slots: SLOTS } });
  }

  /** Clears away what owners that are gone left behind; the names of the slots that it freed. */
  async sweep(): Promise<string[]> {
    const freed: string[] = [];
    for (const name of readdirSync(this.folder)) {
      // The folder of an owner that is gone.
      const owner = /^sinkflex-sandbox-(\d+)-[\w-]+$/.exec(name)?.[1];
      if (owner !== undefined && os.processState(Number(owner)) === undefined)
        rmSync(join(this.folder, name), { recursive: true, force: true });
      if (!/^slot-\d+$/.test(name)) continue;
      const path = join(this.folder, name);
      const record = readRecord(path);
      if (record === undefined || isAlive(record)) continue;
      await new ControlGroup(1, new Map(), record.groups).remove();
      // Another sweeper may have been here, and the slot may be somebody's again: what was taken away is looked at once more.
      const aside = join(this.folder, `gone-${process.pid}-${name}`);
      try {
        renameSync(path, aside);
      } catch {
        continue;
      }
      const taken = readRecord(aside);
      if (taken !== undefined && isAlive(taken)) {
        try {
          linkSync(aside, path);
        } catch {
          // Taken a third time: two sandboxes share a user id, and their process namespaces keep them apart.
        }
      } else freed.push(name);
      remove(aside);
    }
    return freed;
  }
}

function defaultFolder(): string {
  const uid = process.getuid?.() ?? 0;
  const candidates = [...(uid === 0 ? ['/run/sinkflex-sandboxes'] : []), join(tmpdir(), `sinkflex-sandboxes-${uid}`)];
  for (const folder of candidates) {
    try {
      // Others may pass through (a sandbox's user reaches the interpreter that lies here) but neither list nor write.
      mkdirSync(folder, { mode: 0o711 });
    } catch (e) {
      if ((e as NodeJS.ErrnoException).code !== 'EEXIST') continue;
    }
    const stat = lstatSync(folder);
    if (stat.isDirectory() && stat.uid === uid && (stat.mode & 0o022) === 0) return folder;
  }
  throw new ActorsError(
    'SINKFLEX_SANDBOX_LOST',
    `no folder for sandbox slots: ${candidates.join(' and ')} cannot be made or are not this user's`,
  );
}

function readRecord(path: string): SlotRecord | undefined {
  try {
    const record = JSON.parse(readFileSync(path, 'utf8')) as SlotRecord;
    // They are killed in and removed.
    return record.groups.every((folder) => /^\/sys\/fs\/cgroup\/(?!.*\.\.).*\/sinkflex-sandbox-[\w-]+$/.test(folder)) ? record : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(r: SlotRecord): boolean {
  return r.boot === boot() && os.processRuns(r.pid, r.startTime);
}

function boot(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Removed meanwhile.
  }
}
