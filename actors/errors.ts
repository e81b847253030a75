/** Errors of the RL floor: a stable code, the values, and what to do. Listed in docs/errors.md. */
import { SinkflexError } from '../kernels/index.ts';

export type ActorsErrorCode =
  | 'SINKFLEX_ENVIRONMENT_UNKNOWN'
  | 'SINKFLEX_ENVIRONMENT_TAKEN'
  | 'SINKFLEX_ENVIRONMENT_OPTION'
  | 'SINKFLEX_ENVIRONMENT_LOST'
  | 'SINKFLEX_ENVIRONMENT_FAILED'
  | 'SINKFLEX_LATENCY_SYNTAX'
  | 'SINKFLEX_TOKENIZER'
  | 'SINKFLEX_CHAT_TEMPLATE'
  | 'SINKFLEX_CONVERSATION'
  | 'SINKFLEX_TRAJECTORY_EVIDENCE'
  | 'SINKFLEX_TRAJECTORY_STORE'
  | 'SINKFLEX_QUEUE_CAPACITY'
  | 'SINKFLEX_LEDGER_DUPLICATE'
  | 'SINKFLEX_LEDGER_UNKNOWN'
  | 'SINKFLEX_LEDGER_UNBALANCED'
  | 'SINKFLEX_REWARD_INVALID'
  | 'SINKFLEX_LOSS_OPTION'
  | 'SINKFLEX_LOSS_NOT_FINITE'
  | 'SINKFLEX_RECIPE_UNKNOWN'
  | 'SINKFLEX_CHECKPOINT_INVALID'
  | 'SINKFLEX_ROLLOUT_FAILED'
  | 'SINKFLEX_RUN_FAILED';

/** A failure of this floor. `details` are plain data and survive a worker boundary. */
export class ActorsError extends SinkflexError {
  constructor(code: ActorsErrorCode, message: string, o: { details?: Record<string, unknown>; cause?: unknown } = {}) {
    super(code, message, o);
    this.name = 'ActorsError';
  }
}

/** The name in `known` nearest to `name`, if near enough that a typing slip explains it. */
export function didYouMean(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}
