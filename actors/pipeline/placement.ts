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
  /** Rollouts and trainer have cores of their own on this host. */
  separate: boolean;
  /** Episodes one rollout actor runs at once. */
  sequences: number;
}

/**
 * Colocated: one rollout actor a core with one thread each, since episodes are independent and the agent loop shares the core; the trainer may use
 * all cores: in synchronous mode it works alone, in asynchronous mode the operating system divides them.
 * Separate: half the cores, and at least one, are the trainer's and the reference's, the others the rollouts'; on a cluster with other hosts
 * the rollouts are there, and each side takes all cores of its own.
 */
export function place(c: TrainingConfig, all: number): Placement {
  const learning =
    c.trainer.placement === 'separate' && c.cluster.address === null && c.cluster.launcher === null
      ? Math.max(1, Math.floor(all / 2))
      : undefined;
  const cores = learning === undefined ? all : Math.max(1, all - learning);
  // One actor feeds a server, which batches what it is given.
  const rolloutActors = c.rollout.name !== 'sinkflex' ? 1 : (c.rollout.num_actors ?? Math.max(1, Math.min(cores, 8)));
  return {
    rolloutActors,
    rolloutThreads: c.rollout.threads ?? Math.max(1, Math.floor(cores / rolloutActors)),
    environmentActors: c.env.num_actors,
    trainers: c.actor.num_actors,
    trainerThreads: c.actor.threads ?? Math.max(1, Math.floor((learning ?? all) / c.actor.num_actors)),
    referenceThreads: usesReference(c) ? (c.reference.threads ?? 1) : undefined,
    separate: learning !== undefined,
    sequences: c.rollout.max_num_seqs,
  };
}
