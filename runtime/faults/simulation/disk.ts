// A log on a virtual disk. What was appended is safe when its sync has ended; a crash keeps some of the rest, always from the front.
import type { RecordLog } from '../../head/journal.ts';
import { freeze } from './freeze.ts';
import type { Dice, Process } from './time.ts';

/** What survives the process that writes it. */
export class VirtualDisk {
  snapshot: unknown;
  records: unknown[] = [];
}

const SNAPSHOT_AFTER = 400;

export class VirtualLog implements RecordLog {
  readonly #disk: VirtualDisk;
  readonly #process: Process;
  readonly #dice: Dice;
  #queue: ({ record: unknown } | { action: () => void })[] = [];
  #syncing = false;
  makeSnapshot: (() => unknown) | undefined;
  /** Called once, at the next record. */
  onAppend: (() => void) | undefined;

  constructor(disk: VirtualDisk, process: Process, dice: Dice) {
    this.#disk = disk;
    this.#process = process;
    this.#dice = dice;
    process.onEnd(() => this.#crash());
  }

  append(record: unknown): void {
    freeze(record);
    this.#queue.push({ record });
    const { onAppend } = this;
    this.onAppend = undefined;
    onAppend?.();
    this.#sync();
  }

  whenDurable(action: () => void): void {
    if (this.#queue.length === 0 && !this.#syncing) action();
    else this.#queue.push({ action });
  }

  #sync(): void {
    if (this.#syncing) return;
    this.#syncing = true;
    this.#process.after(0, () => {
      // What comes while it is under way waits for the next one.
      const count = this.#queue.length;
      this.#process.after(this.#dice.delay(1), () => this.#synced(count));
    });
  }

  #synced(count: number): void {
    const done = this.#queue.slice(0, count);
    for (const each of done) if ('record' in each) this.#disk.records.push(each.record);
    // Whatever an action leads to is written after all of this.
    this.#queue = this.#queue.slice(count);
    for (const each of done) if ('action' in each) each.action();
    if (this.#queue.length === 0 && this.#disk.records.length > SNAPSHOT_AFTER && this.makeSnapshot !== undefined) {
      this.#disk.snapshot = structuredClone(this.makeSnapshot());
      this.#disk.records = [];
    }
    this.#syncing = false;
    if (this.#queue.length > 0) this.#sync();
  }

  #crash(): void {
    const records = this.#queue.flatMap((each) => ('record' in each ? [each.record] : []));
    this.#disk.records.push(...records.slice(0, this.#dice.below(records.length + 1)));
    this.#queue = [];
  }
}
