/**
 * Infrastructure failures redo an episode from its start with the same random keys; they are never a reward of 0. Bounded: an episode that
 * infrastructure keeps losing becomes `error`, which the queue counts as aborted and never trains.
 */
import { isSinkflexError } from '../../kernels/index.ts';
import type { Trajectory } from '../trajectory/index.ts';
import type { EpisodeTask } from './episode.ts';

/** Errors that say something about the machine and nothing about the policy. */
const infrastructure: ReadonlySet<string> = new Set([
  'SINKFLEX_ACTOR_DIED',
  'SINKFLEX_ACTOR_BUSY',
  'SINKFLEX_CALL_TIMEOUT',
  'SINKFLEX_OBJECT_LOST',
  'SINKFLEX_ENVIRONMENT_LOST',
  'SINKFLEX_SANDBOX_LOST',
  'SINKFLEX_REWARD_FAILED',
  'SINKFLEX_ROLLOUT_SERVER',
]);

export function isInfrastructureFailure(e: unknown): boolean {
  return isSinkflexError(e) && infrastructure.has(e.code) && e.details?.final !== true;
}

export async function playWithRetries(
  task: EpisodeTask,
  signal: AbortSignal,
  retries: number,
  play: (attempt: number) => Promise<Trajectory>,
): Promise<Trajectory> {
  for (let attempt = 0; ; attempt++) {
    try {
      const t = await play(attempt);
      t.redone = attempt;
      return t;
    } catch (e) {
      if (!isInfrastructureFailure(e)) throw e;
      if (signal.aborted || attempt >= retries) return lost(task, attempt, signal.aborted ? 'aborted' : 'error');
    }
  }
}

function lost(task: EpisodeTask, redone: number, stopReason: 'aborted' | 'error'): Trajectory {
  return {
    ...task,
    ids: new Int32Array(0),
    mask: new Uint8Array(0),
    logprobs: new Float32Array(0),
    versions: new Int32Array(0),
    lineage: 0,
    reward: 0,
    rewardParts: {},
    stopReason,
    turns: 0,
    toolCalls: 0,
    malformed: 0,
    redone,
    seconds: { total: 0, generate: 0, environment: 0 },
  };
}
