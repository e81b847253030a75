/** Which actors a run starts, and how many threads each gets: settings where they are given, else what fits the machine. Pure. */
import type { TrainingConfig } from './config.ts';
import { usesReference } from './settings.ts';

export interface Placement {
  rolloutActors: number;
  /** Engine threads of one rollout actor. */
  rolloutThreads: number;
  environmentActors: number;
  /** Data-parallel trainers, and the threads of each. */
  trainers: number;
  trainerThreads: number;
  /** undefined: no reference actor, since the KL has no place in loss or reward. */
  referenceThreads: number | undefined;
  /** Episodes one rollout actor runs at once. */
  sequences: number;
}

/**
 * One rollout actor a core with one thread each, since episodes are independent and the agent loop shares the core; the trainer may use
 * all cores: in synchronous mode it works alone, in asynchronous mode the operating system divides them.
 */
export function place(c: TrainingConfig, cores: number): Placement {
  // One actor feeds a server, which batches what it is given.
  const rolloutActors = c.rollout.name !== 'sinkflex' ? 1 : (c.rollout.num_actors ?? Math.max(1, Math.min(cores, 8)));
  return {
    rolloutActors,
    rolloutThreads: c.rollout.threads ?? Math.max(1, Math.floor(cores / rolloutActors)),
    environmentActors: c.env.num_actors,
    trainers: c.actor.num_actors,
    trainerThreads: c.actor.threads ?? Math.max(1, Math.floor(cores / c.actor.num_actors)),
    referenceThreads: usesReference(c) ? (c.reference.threads ?? 1) : undefined,
    sequences: c.rollout.max_num_seqs,
  };
}
