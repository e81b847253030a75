// One for all: when a member of a group dies by itself, all are restarted, so that none keeps a state that the others have lost.
import { kill, ready } from '../api/actors.ts';
import { ActorFailedError, type Death, RuntimeFailure } from '../api/errors.ts';
import { clientOf } from '../api/handle.ts';
import type { AnyHandle } from '../api/types.ts';
import type { DeathData } from '../control/index.ts';
import { decodeError } from '../wire/index.ts';

/** An error of one member, as that of its rank. */
export function ofRank(rank: number, cause: unknown): RuntimeFailure {
  const { message, details } = cause as { message?: string; details?: Record<string, unknown> };
  return new RuntimeFailure('SINKFLEX_RANK_FAILED', `rank ${rank}: ${message ?? String(cause)}`, {
    cause,
    details: { rank, ...(details?.mayHaveRun === undefined ? {} : { mayHaveRun: details.mayHaveRun }) },
  });
}

export class Supervisor {
  readonly #members: readonly AnyHandle[];
  readonly #budget: { restarts: number; windowMs: number };
  #recent: number[] = [];
  #restarts = 0;
  #closed = false;
  /** Why all were ended. */
  failure: Error | undefined = undefined;
  #round: Promise<void> | undefined;
  /** One died that had already been restarted in this round: another follows. */
  #again = false;
  /** By rank: the newest incarnation, the newest whose death was counted, and the newest when the restart of all began. */
  readonly #incarnations: number[];
  readonly #seen: number[];
  #base: number[];
  readonly #listeners = new Set<(restarts: number) => void>();
  readonly #stop: (() => void)[];

  constructor(members: readonly AnyHandle[], budget: { restarts: number; windowMs: number }) {
    this.#members = members;
    this.#budget = budget;
    this.#incarnations = members.map(() => 1);
    this.#seen = members.map(() => 0);
    this.#base = [];
    this.#stop = members.map((member, rank) =>
      clientOf(member).watch((place) => {
        const { death } = place;
        if (death?.reason === 'exit' || death?.reason === 'constructor') this.#died(rank, death);
        this.#incarnations[rank] = place.incarnation;
      }),
    );
  }

  /** Those that died before they had heard of the restart of all are part of it. */
  #died(rank: number, death: DeathData): void {
    const { incarnation } = death;
    if (this.#closed || incarnation <= this.#seen[rank]!) return;
    this.#seen[rank] = incarnation;
    if (this.#round !== undefined && incarnation <= this.#base[rank]!) return;
    const now = Date.now();
    this.#recent = this.#recent.filter((at) => now - at < this.#budget.windowMs);
    if (this.#recent.length >= this.#budget.restarts) {
      const { name } = clientOf(this.#members[rank]!);
      const why: Death = { ...death, cause: death.cause === undefined ? undefined : decodeError(death.cause) };
      this.failure = ofRank(rank, new ActorFailedError(name, why, this.#restarts, false));
      this.close();
      for (const member of this.#members) kill(member).catch(() => {});
      return;
    }
    this.#recent.push(now);
    if (this.#round !== undefined) {
      // Those that were made before it must not outlive it. One that never was has nothing to outlive: it tries again alone.
      if (death.reason !== 'constructor') this.#again = true;
      return;
    }
    // The one that died comes back by itself.
    this.#restartAll((member) => (member === this.#members[rank] ? ready(member) : kill(member, { restart: true })));
  }

  #restartAll(restart: (member: AnyHandle) => Promise<void>): void {
    this.#restarts++;
    this.#again = false;
    this.#base = [...this.#incarnations];
    this.#round = Promise.all(this.#members.map(restart)).then(
      () => this.#over(true),
      () => this.#over(false),
    );
  }

  #over(well: boolean): void {
    this.#round = undefined;
    if (this.#closed) return;
    if (this.#again) this.#restartAll((member) => kill(member, { restart: true }));
    else if (well) for (const listener of this.#listeners) listener(this.#restarts);
  }

  get restarting(): boolean {
    return this.#round !== undefined;
  }

  /** When no restart is under way. */
  async settled(): Promise<void> {
    while (this.#round !== undefined) await this.#round;
  }

  onRestart(listener: (restarts: number) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#closed = true;
    for (const stop of this.#stop) stop();
  }
}
