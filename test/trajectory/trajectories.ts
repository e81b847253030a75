// Trajectories to test with: shared by the tests of this room.
import type { Trajectory } from '../../actors/trajectory/index.ts';

export function trajectory(task: number, sample: number, length = 6, reward = sample % 2): Trajectory {
  const mask = Uint8Array.from({ length }, (_, k) => (k > 1 && (k < 4 || k === length - 1) ? 1 : 0));
  return {
    task,
    sample,
    group: `g${task}`,
    seed: task * 7,
    ids: Int32Array.from({ length }, (_, k) => 1000 * task + 100 * sample + k),
    mask,
    logprobs: Float32Array.from(mask, (m, k) => (m ? -0.1 * k - 1 / 3 : 0)),
    versions: Int32Array.from(mask, (m, k) => (m ? (k < 4 ? 3 : 4) : -1)),
    lineage: 0,
    reward,
    rewardParts: { state: reward },
    // Not every environment counts something beside the score.
    ...(task % 2 === 1 ? { diagnostics: { tool_errors: sample, collateral_writes: 0 } } : {}),
    stopReason: 'stop',
    turns: 2,
    toolCalls: 1,
    malformed: 0,
    redone: 0,
    seconds: { total: 0, generate: 0, environment: 0 },
  };
}
