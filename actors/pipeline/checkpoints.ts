/**
 * The checkpoints of a run: written one at a time while training goes on, the oldest taken away, and the newest whole one found again when
 * the run has to go back.
 */
import { ActorsError } from '../errors.ts';
import { type CheckpointState, readCheckpoint } from '../trainer/index.ts';
import type { RunFolder } from './run-folder.ts';

export interface CheckpointsOptions {
  folder: RunFolder;
  /** How many stay. */
  keep: number;
  /** A checkpoint stands; `oldest` is the step of the oldest one that the run can still go back to. */
  onSaved: (oldest: number) => void;
  /** Worth a warning: a checkpoint was found damaged, and is not used. */
  onWarning: (text: string) => void;
}

export class Checkpoints {
  readonly #o: CheckpointsOptions;
  #writing: Promise<void> = Promise.resolve();

  constructor(o: CheckpointsOptions) {
    this.#o = o;
  }

  /** Begins one as soon as the last is done; `write` is called then, and what it answers is waited for behind the run's back. */
  async begin(step: number, write: (dir: string) => PromiseLike<unknown>): Promise<void> {
    await this.#writing;
    this.#writing = this.#write(step, write);
    // Whoever waits for it sees the failure.
    this.#writing.catch(() => {});
  }

  async #write(step: number, write: (dir: string) => PromiseLike<unknown>): Promise<void> {
    const { folder, keep, onSaved } = this.#o;
    await write(folder.checkpoint(step));
    folder.pruneCheckpoints(keep);
    onSaved(folder.checkpoints()[0] ?? step);
  }

  /** Resolves when the last one stands; rejects as its writing did. */
  settled(): Promise<void> {
    return this.#writing;
  }

  /** The newest checkpoint that is as it was written: where a run goes back to. Whatever was being written is given up. */
  async newest(): Promise<{ dir: string; state: CheckpointState }> {
    await this.#writing.catch(() => {});
    this.#writing = Promise.resolve();
    const whole = await this.#o.folder.newestWhole({
      setAside: true,
      onDamaged: ({ message }) => this.#o.onWarning(`${message}; an older one is used`),
    });
    if (whole === undefined)
      throw new ActorsError('SINKFLEX_CHECKPOINT_DAMAGED', `${this.#o.folder.path} has no whole checkpoint left to go back to`);
    return { dir: whole.dir, state: readCheckpoint(whole.dir) };
  }
}
