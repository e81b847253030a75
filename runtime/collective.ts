// Collectives among actors of a host, in whatever isolation, and the driver: those of kernels/, bound to the lives of calls and actors.
import { Collective, type CollectiveGroup, type CollectiveOptions, createCollective as createGroup } from '../kernels/host.ts';
import { checkKnown } from './api/check.ts';
import { actorScope, callScope, onAbort } from './worker/index.ts';

export {
  Collective,
  type CollectiveBrokenDetails,
  type CollectiveEnd,
  type CollectiveGroup,
  type CollectiveOptions,
  collectiveSlice,
  type NumberArray,
  type Reduction,
} from '../kernels/host.ts';

/** Operations inherit the deadline and the signal of the call that makes them; the end of the actor ends its membership. */
class ActorCollective extends Collective {
  #stopWaiting: (() => void) | undefined;

  constructor(group: CollectiveGroup, rank: number) {
    super(group, rank);
    const stop = actorScope()?.actor.stopSignal;
    if (stop?.aborted) this.leave();
    else if (stop !== undefined) this.#stopWaiting = onAbort(stop, () => super.leave());
  }

  override leave(): void {
    this.#stopWaiting?.();
    super.leave();
  }

  protected override options(given: CollectiveOptions): CollectiveOptions {
    checkKnown('a collective operation', given, { timeoutMs: true, signal: true });
    const scope = callScope();
    if (scope === undefined) return given;
    const options = { ...given };
    if (scope.expiresAt > 0) {
      const left = Math.max(0, scope.expiresAt - performance.now());
      options.timeoutMs = Math.min(given.timeoutMs ?? left, left);
    }
    if (scope.abortable) options.signal = given.signal === undefined ? scope.signal : AbortSignal.any([given.signal, scope.signal]);
    return options;
  }
}

/**
 * Makes a group of so many members. Give it to them as an argument; each joins with a rank of its own, within a quarter of an hour.
 * `chunkBytes` (default 1 MiB, a multiple of 4096): how much is staged at once.
 *
 * @example
 * const group = createCollective(4);
 * await Promise.all(trainers.map((trainer, rank) => trainer.join(group, rank)));
 */
export function createCollective(members: number, options: { chunkBytes?: number } = {}): CollectiveGroup {
  checkKnown('createCollective', options, { chunkBytes: true });
  return createGroup(members, options);
}

/**
 * Takes a rank of a group that createCollective made, and waits until all members have: in actors, with the group and the rank as arguments
 * of a call.
 *
 * @example
 * export const Trainer = defineActor(import.meta.url, 'Trainer', class {
 *   #collective!: Collective;
 *   async join(group: CollectiveGroup, rank: number) { this.#collective = await joinCollective(group, rank); }
 *   async step(gradients: Float32Array) { return this.#collective.allReduce(gradients, 'mean'); }
 * });
 */
export async function joinCollective(group: CollectiveGroup, rank: number, options: CollectiveOptions = {}): Promise<Collective> {
  const collective = new ActorCollective(group, rank);
  await collective.barrier(options);
  return collective;
}
