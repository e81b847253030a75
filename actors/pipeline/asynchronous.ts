/**
 * Asynchronous GRPO: rollouts go on while the trainer updates, up to eta batches ahead (the queue's admission); each engine takes the new
 * version at its next decode step. The next batch is awaited, packed and scored by the reference during the update.
 */
import type { AfterStep, PolicySteps, Prepared } from './policy-steps.ts';

export async function asynchronousSteps(steps: PolicySteps, after: AfterStep): Promise<void> {
  steps.waiting();
  let prepared: Prepared | undefined = await steps.prepare();
  while (prepared) {
    const following = steps.prepare();
    // Seen below; until then a failure of it must not count as unhandled.
    following.catch(() => {});
    const report = await steps.update(prepared);
    steps.dataflow.pump();
    if (!(await after(report))) return;
    steps.waiting();
    prepared = await following;
  }
}
