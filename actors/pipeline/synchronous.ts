/** Synchronous GRPO: sample a batch with the newest policy, update, again. Nothing is under way while the trainer works. */
import type { AfterStep, PolicySteps } from './policy-steps.ts';

export async function synchronousSteps(steps: PolicySteps, after: AfterStep): Promise<void> {
  for (;;) {
    steps.waiting();
    const prepared = await steps.prepare();
    const report = await steps.update(prepared);
    if (!(await after(report))) return;
  }
}
