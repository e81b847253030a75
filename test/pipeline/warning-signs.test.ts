// Each way in which learning goes wrong is seen, told once, and not seen in runs that go well; a restored run sees what an undisturbed one does.
import t from 'tap';
import { type signNames, WarningSigns } from '../../actors/pipeline/warning-signs.ts';
import type { Metrics } from '../../actors/trainer/index.ts';

const healthy = (step: number): Metrics => ({
  'training/global_step': step,
  'training/score': Math.min(0.97, 0.3 + 0.01 * step),
  'actor/entropy': Math.max(0.01, 0.3 - 0.004 * step),
  'actor/grad_norm': 0.1 + 0.05 * Math.sin(step),
  'actor/loss': 0.01,
  'actor/ppo_kl': 0.01,
  frac_reward_zero_std: Math.min(0.95, 0.01 * step),
  'training/rollout_probs_diff_mean': 0,
  'response_length/clip_ratio': 0.05,
  'training/not_finite_tokens': 0,
});

/** `change` in the steps that `when` says. */
const during =
  (when: (step: number) => boolean, change: Metrics) =>
  (step: number): Metrics =>
    when(step) ? change : {};

/** The signs of `steps` steps, in the order in which they were told. */
function told(steps: number, change: (step: number) => Metrics, mode: 'sync' | 'async' = 'sync'): string[] {
  const signs = new WarningSigns({ mode });
  return Array.from({ length: steps }, (_, i) => signs.step({ ...healthy(i + 1), ...change(i + 1) })).flatMap((r) =>
    r.reports.map((x) => x.sign),
  );
}

t.test('a run that learns shows no sign', async (t) => {
  t.strictSame(
    told(200, () => ({})),
    [],
  );
  t.strictSame(
    told(200, () => ({ 'training/rollout_probs_diff_mean': 0.01 }), 'async'),
    [],
    'stale tokens differ a little',
  );
});

t.test('every sign is seen, once while it lasts, and says what to try', async (t) => {
  const cases: Record<Exclude<(typeof signNames)[number], 'reward_hacking'>, (step: number) => Metrics> = {
    not_finite: during((s) => s >= 20 && s < 25, { 'actor/grad_norm': Number.NaN }),
    gradient_spike: during((s) => s === 30, { 'actor/grad_norm': 40 }),
    policy_jump: during((s) => s === 30, { 'actor/ppo_kl': -1.5 }),
    entropy_collapse: (s) => ({ 'actor/entropy': s < 15 ? 0.3 : 0.001, 'training/score': 0.3 }),
    entropy_explosion: (s) => ({ 'actor/entropy': s < 15 ? 0.3 : 3 }),
    no_spread: (s) => ({ frac_reward_zero_std: 0.95, 'training/score': s > 100 ? 0.5 : 0 }),
    sampling_mismatch: () => ({ 'training/rollout_probs_diff_mean': 0.1 }),
    cut_off: () => ({ 'response_length/clip_ratio': 0.9 }),
  };
  for (const [name, change] of Object.entries(cases)) t.strictSame(told(60, change), [name], name);
  t.strictSame(
    told(
      60,
      during((s) => s === 20 || s === 40, { 'actor/loss': Infinity }),
    ),
    ['not_finite', 'not_finite'],
    'gone and back',
  );
  const signs = new WarningSigns({ mode: 'sync' });
  const { reports, metrics } = signs.step({ ...healthy(1), 'training/not_finite_tokens': 3 });
  t.match(reports, [{ sign: 'not_finite', text: /^3 tokens .*lower actor\.optim\.lr/ }]);
  t.strictSame(metrics, { 'signs/not_finite': 1 });
});

t.test('reward hacking: the training score rises while the held-out score falls by more than its intervals', async (t) => {
  const run = (validations: [number, number]) => {
    const signs = new WarningSigns({ mode: 'sync' });
    const all: string[] = [];
    for (let s = 1; s <= 60; s++) {
      all.push(...signs.step(healthy(s)).reports.map((r) => r.sign));
      if (s % 25 === 0) signs.validation(validations[s / 25 - 1]!, 0.03);
    }
    return all;
  };
  t.strictSame(run([0.6, 0.4]), ['reward_hacking']);
  t.strictSame(run([0.6, 0.57]), [], 'within the intervals');
  t.strictSame(run([0.4, 0.6]), []);
});

t.test('after the records of a run it stands where the run stood', async (t) => {
  const change = (s: number): Metrics => ({ ...healthy(s), ...(s >= 40 ? { 'actor/entropy': 0.0001, 'training/score': 0.3 } : {}) });
  const whole = new WarningSigns({ mode: 'sync' });
  const records: Metrics[] = [];
  const rest: unknown[] = [];
  for (let s = 1; s <= 80; s++) {
    const seen = whole.step(change(s));
    if (s <= 45) records.push({ ...change(s), ...seen.metrics });
    else rest.push(seen);
    if (s === 30) {
      whole.validation(0.5, 0.1);
      records.push({
        'training/global_step': 30,
        'val-core/x/reward/mean@1': 0.5,
        'val-core/x/reward/mean@1/low': 0.4,
        'val-core/x/reward/mean@1/high': 0.6,
        'val-core/x/tasks': 9,
      });
    }
  }
  const restored = WarningSigns.after(records, { mode: 'sync' });
  t.strictSame(
    Array.from({ length: 35 }, (_, i) => restored.step(change(46 + i))),
    rest,
  );
  t.ok(rest.length > 0 && rest.some((r) => (r as { reports: unknown[] }).reports.length > 0), 'and there was something to see');
});
