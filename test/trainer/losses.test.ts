// The learning side's formulas: hand checks, finite differences of every switch, that each switch changes the loss, and that no split into
// micro-batches changes a gradient.
import t from 'tap';
import { advantageEstimator, groupStatistics, registerAdvantageEstimator } from '../../actors/trainer/advantages.ts';
import { type AggregationMode, aggregationModes, responseTokenCounts, sequenceCoefficients } from '../../actors/trainer/aggregation.ts';
import { klDerivative, klLossEstimator, klValue } from '../../actors/trainer/kl.ts';
import { lossValue, type ObjectiveInput, type ObjectiveOptions, ObjectiveSums, objective } from '../../actors/trainer/objective.ts';
import { type CorrectionOptions, correctionWeights, refuseDoubleCorrection, rejections } from '../../actors/trainer/off-policy.ts';
import { policyLoss, registerPolicyLoss } from '../../actors/trainer/policy-losses.ts';
import { overlongPenalty, shapeRewards } from '../../actors/trainer/shaping.ts';

const options: ObjectiveOptions = {
  policyLoss: policyLoss('vanilla'),
  clipLow: 0.2,
  clipHigh: 0.2,
  dualClip: null,
  correction: { mode: null, threshold: 2 },
  klCoefficient: 0,
  klEstimator: 'k3',
  entropyCoefficient: 0,
};

function advantages(
  name: string,
  rewards: number[],
  groupOf: number[],
  o = { normalizeByStd: true, std: 'sample' as 'sample' | 'population' },
  tokens?: number[],
) {
  return [
    ...advantageEstimator(name)(
      {
        rewards: Float64Array.from(rewards),
        groupOf: Int32Array.from(groupOf),
        responseTokens: Int32Array.from(tokens ?? rewards.map(() => 1)),
      },
      o,
    ),
  ];
}
const near = (
  t: { equal: (a: unknown, b: unknown) => unknown; ok: (a: unknown, m: string) => unknown },
  got: number[],
  want: number[],
  within = 1e-5,
) => {
  t.equal(got.length, want.length);
  got.forEach((g, i) => {
    t.ok(Math.abs(g - want[i]!) <= within, `${g} is ${want[i]}`);
  });
};

t.test('advantages: hand checks', async (t) => {
  near(t, advantages('grpo', [0, 1], [0, 0]), [-Math.SQRT1_2, Math.SQRT1_2]);
  near(t, advantages('grpo', [0, 1], [0, 0], { normalizeByStd: true, std: 'population' }), [-1, 1]);
  near(t, advantages('grpo', [0, 1, 1, 0.5], [0, 0, 1, 1], { normalizeByStd: false, std: 'sample' }), [-0.5, 0.5, 0.25, -0.25]);
  near(t, advantages('rloo', [0, 0, 3], [0, 0, 0]), [-1.5, -1.5, 3]);
  const third = 0.1 + 0.2 - 0.3 + 1 / 3;
  t.strictSame(advantages('grpo', [1 / 3, third, 1 / 3], [0, 0, 0]), [0, 0, 0], 'equal up to rounding is exactly 0');
  t.strictSame(advantages('grpo', [0.7, 0.1, 0.1], [0, 1, 1]), [0, 0, 0], 'a group of one teaches nothing');
  near(t, advantages('grpo', [0, 1, 0, 1, 1], [0, 0, 1, 1, 1]), [-Math.SQRT1_2, Math.SQRT1_2, -1.1547, 0.57735, 0.57735], 1e-4);
  const whitened = advantages('reinforce_plus_plus', [0, 1], [0, 1], undefined, [3, 1]);
  near(t, whitened, [-0.5, 1.5], 1e-6);
  // Group means 0.5 and 2/3; then over the tokens, of which the second trajectory has three.
  const centred = [-0.5, 0.5, -2 / 3, 1 / 3, 1 / 3];
  const tokens = [1, 3, 1, 1, 1];
  const mean = centred.reduce((s, a, i) => s + a * tokens[i]!, 0) / 7;
  const std = Math.sqrt(centred.reduce((s, a, i) => s + (a - mean) ** 2 * tokens[i]!, 0) / 6 + 1e-8);
  near(
    t,
    advantages('reinforce_plus_plus_baseline', [0, 1, 0, 1, 1], [0, 0, 1, 1, 1], undefined, tokens),
    centred.map((a) => (a - mean) / std),
    1e-9,
  );
  t.strictSame(
    advantages('reinforce_plus_plus_baseline', [1, 1, 5], [0, 0, 1]),
    [0, 0, 0],
    'equal rewards and a group of one teach nothing',
  );
  t.throws(() => advantageEstimator('grp'), { code: 'SINKFLEX_RECIPE_UNKNOWN', message: /did you mean grpo/ });
  registerAdvantageEstimator('raw', (input) => Float64Array.from(input.rewards));
  t.strictSame(advantages('raw', [3], [0]), [3]);
  const stats = groupStatistics({
    rewards: Float64Array.from([0, 1, 1, 1]),
    groupOf: Int32Array.from([0, 0, 1, 1]),
    responseTokens: new Int32Array(4),
  });
  t.match(stats, { groups: 2, zeroStd: 1 });
});

/** A batch from per-sequence tables; one prompt token (masked) in front of each sequence, NaN where nothing may be read. */
function batch(
  rows: { ratios: (number | null)[]; a: number; group?: number; b?: number[]; f?: number[] }[],
  mode: AggregationMode,
  horizon = 4,
) {
  const cu = [0];
  const l: number[] = [];
  const o: number[] = [];
  const b: number[] = [];
  const f: number[] = [];
  const mask: number[] = [];
  for (const row of rows) {
    l.push(NaN);
    o.push(NaN);
    b.push(NaN);
    f.push(NaN);
    mask.push(0);
    row.ratios.forEach((r, k) => {
      const old = -1 - 0.1 * k;
      l.push(r === null ? NaN : old + Math.log(r));
      o.push(r === null ? NaN : old);
      b.push(r === null ? NaN : (row.b?.[k] ?? old));
      f.push(r === null ? NaN : (row.f?.[k] ?? old - 0.3));
      mask.push(r === null ? 0 : 1);
    });
    cu.push(l.length);
  }
  const groupOf = Int32Array.from(rows, (r, i) => r.group ?? i);
  const cuSeqlens = Int32Array.from(cu);
  const m = Uint8Array.from(mask);
  const counts = responseTokenCounts({ mask: m, cuSeqlens });
  return {
    cuSeqlens,
    mask: m,
    l: Float32Array.from(l),
    o: Float32Array.from(o),
    b: Float32Array.from(b),
    f: Float32Array.from(f),
    entropy: Float32Array.from(l, (_, i) => 0.5 + 0.01 * i),
    advantages: Float64Array.from(rows, (r) => r.a),
    coefficients: sequenceCoefficients(mode, counts, groupOf, { from: 0, to: rows.length }, horizon),
  } satisfies ObjectiveInput;
}
function value(input: ObjectiveInput, o: ObjectiveOptions) {
  const sums = new ObjectiveSums();
  const g = objective(input, o, sums);
  return { loss: lossValue(sums, o), sums, ...g };
}

const hand = [
  { ratios: [2, 0.5], a: 1, group: 0 },
  { ratios: [1, null], a: 1, group: 0 },
];
t.test('losses: hand checks of the aggregation modes', async (t) => {
  const want: Record<AggregationMode, number> = {
    'seq-mean-token-mean': -0.925,
    'token-mean': -0.9,
    'seq-mean-token-sum': -1.35,
    'seq-mean-token-sum-norm': -0.3375,
    'prompt-mean': -0.9,
  };
  for (const mode of aggregationModes) near(t, [value(batch(hand, mode), options).loss], [want[mode]], 1e-6);
  const split = hand.map((r, i) => ({ ...r, group: i }));
  near(t, [value(batch(split, 'prompt-mean'), options).loss], [-0.925], 1e-6);
  t.equal(value(batch(hand, 'token-mean'), options).sums.clipped, 1);
  const empty = batch([...hand, { ratios: [null], a: 5 }], 'seq-mean-token-mean');
  near(t, [value(empty, options).loss], [-0.925], 1e-6);
  // GSPO: the ratio of (1.1, 0.9, 1.5) is the geometric mean 1.485^(1/3).
  const gspo = { ...options, policyLoss: policyLoss('gspo'), clipHigh: 10 };
  near(t, [value(batch([{ ratios: [1.1, 0.9, 1.5], a: 1 }], 'seq-mean-token-mean'), gspo).loss], [-Math.cbrt(1.485)], 1e-6);
  // A one-token response, on policy: exactly -A, ratio 1, nothing clipped.
  const one = batch([{ ratios: [1], a: 0.7 }], 'token-mean');
  const onPolicy = value({ ...one, o: undefined }, options);
  t.equal(onPolicy.loss, -0.7);
  t.equal(onPolicy.sums.clipped, 0);
  near(t, [...onPolicy.dLogprobs], [0, -0.7], 1e-7);
});

const varied = [
  { ratios: [1.05, 0.95, 1.9, 0.4], a: 1.3, group: 0, b: [-1.2, -1.0, -2.5, -1.4], f: [-0.8, -1.3, -1.1, -2.0] },
  { ratios: [1.1, 0.3, 5.5], a: -0.8, group: 0, b: [-0.9, -1.3, -1.15] },
  { ratios: [0.97, null, 1.15], a: 0.4, group: 1, b: [-0.4, 0, -3.2], f: [-1.5, 0, -0.9] },
];
/** Every switch of the loss, as a change of the options. */
const switches: Record<string, Partial<ObjectiveOptions>> = {
  'clip higher': { clipHigh: 0.99 },
  'clip lower': { clipLow: 0.65 },
  'dual clip': { dualClip: 3 },
  'truncated importance weight': { correction: { mode: 'token', threshold: 2 } },
  'decoupled PPO': { correction: { mode: 'decoupled', threshold: 2 } },
  'sequence importance weight': { correction: { mode: 'sequence', threshold: 3 } },
  rejection: { correction: { mode: null, threshold: 2, rejection: { mode: 'seq_max_k2', threshold: 0.9 } } },
  icepop: { correction: { mode: 'icepop', threshold: 1.5 } },
  'KL k3': { klCoefficient: 0.1, klEstimator: 'k3' },
  'KL k2': { klCoefficient: 0.1, klEstimator: 'k2' },
  entropy: { entropyCoefficient: 0.01 },
  gspo: { policyLoss: policyLoss('gspo') },
};

t.test('losses: every switch changes the loss, and its derivative agrees with finite differences', async (t) => {
  const seen = new Map<string, number>();
  for (const [name, change] of [['plain', {}] as const, ...Object.entries(switches)]) {
    for (const mode of aggregationModes) {
      if (name === 'gspo' && mode !== 'seq-mean-token-mean') continue;
      const input = batch(varied, mode);
      const o = { ...options, ...change };
      const { loss, dLogprobs, dEntropy } = value(input, o);
      if (mode === 'seq-mean-token-mean') {
        for (const [other, v] of seen) t.ok(Math.abs(v - loss) > 1e-6, `${name} differs from ${other}`);
        seen.set(name, loss);
      }
      for (let k = 0; k < input.l.length; k++) {
        if (input.mask[k] !== 1) {
          t.equal(dLogprobs[k], 0);
          continue;
        }
        // The step in float32 arrays: perturb by a power of two and use the difference that really happened.
        const up = { ...input, l: Float32Array.from(input.l) };
        const down = { ...input, l: Float32Array.from(input.l) };
        up.l[k]! += 2 ** -9;
        down.l[k]! -= 2 ** -9;
        const numeric = (value(up, o).loss - value(down, o).loss) / (up.l[k]! - down.l[k]!);
        t.ok(Math.abs(numeric - dLogprobs[k]!) < 2e-5, `${name}, ${mode}, token ${k}: ${numeric} is ${dLogprobs[k]}`);
        if (dEntropy) {
          const h = { ...input, entropy: Float32Array.from(input.entropy) };
          h.entropy[k]! += 0.25;
          t.ok(Math.abs((value(h, o).loss - loss) / (h.entropy[k]! - input.entropy[k]!) - dEntropy[k]!) < 1e-7);
        }
      }
    }
  }
  // CISPO's weight is a constant: its derivative is that of -w A l with w held.
  const cispo = value(batch(varied, 'token-mean'), { ...options, policyLoss: policyLoss('cispo') });
  near(t, [cispo.dLogprobs[3]! * 9], [-1.2 * 1.3], 1e-5);
  let custom = 0;
  registerPolicyLoss('custom', { compute: () => custom++ });
  value(batch(varied, 'token-mean'), { ...options, policyLoss: policyLoss('custom') });
  t.equal(custom, 3);
});

t.test('losses: gradients are the same bits over micro-batch splits', async (t) => {
  const o = { ...options, ...switches['KL k3'], ...switches['truncated importance weight'], ...switches.entropy };
  for (const mode of aggregationModes) {
    const input = batch(varied, mode);
    const whole = value(input, o);
    const sums = new ObjectiveSums();
    const parts = varied.map((_, i) => {
      const start = input.cuSeqlens[i]!;
      const end = input.cuSeqlens[i + 1]!;
      const cut = <A extends Float32Array | Uint8Array>(a: A) => a.subarray(start, end) as A;
      return objective(
        {
          cuSeqlens: Int32Array.from([0, end - start]),
          mask: cut(input.mask),
          l: cut(input.l),
          o: cut(input.o),
          b: cut(input.b),
          f: cut(input.f),
          entropy: cut(input.entropy),
          advantages: input.advantages.subarray(i, i + 1),
          coefficients: input.coefficients.subarray(i, i + 1),
        },
        o,
        sums,
      );
    });
    t.strictSame(
      parts.flatMap((p) => [...p.dLogprobs]),
      [...whole.dLogprobs],
    );
    t.strictSame(
      parts.flatMap((p) => [...p.dEntropy!]),
      [...whole.dEntropy!],
    );
    near(t, [lossValue(sums, o)], [whole.loss], 1e-12);
  }
});

/** Weights of one sequence of produced tokens whose o - b are `d`; a masked token with NaN stands in front. */
function weights(d: number[], o: CorrectionOptions): number[] {
  const out = new Float64Array(d.length + 1).fill(-7);
  const mask = Uint8Array.from([0, ...d.map(() => 1)]);
  correctionWeights({ start: 0, end: d.length + 1, o: Float32Array.from([NaN, ...d]), b: new Float32Array(d.length + 1), mask }, o, out);
  return [...out.subarray(1)];
}

t.test(
  'rejection: tokens or whole sequences that are too far away are left out, and the direction counts only where it says so',
  async (t) => {
    const rs = (mode: (typeof rejections)[number], threshold: number) => ({ mode: null, threshold: 2, rejection: { mode, threshold } });
    t.strictSame(weights([0.5, -0.8, 0.1], rs('token_k1', 2)), [1, 0, 1], 'a ratio of exp(-0.8) is below 1 / 2');
    t.strictSame(weights([0.5, -0.8, 0.1], rs('token_k2', 0.2)), [1, 0, 1], '0.32 is above 0.2');
    t.strictSame(weights([0.5, -0.8, 0.9], rs('token_k3', 0.3)), [1, 1, 0], 'exp(0.9) - 1.9 = 0.56, exp(-0.8) - 0.2 = 0.25');
    t.strictSame(weights([0.9, -0.9], rs('seq_sum_k1', 1.1)), [1, 1], 'opposite differences cancel');
    t.strictSame(weights([0.5, 0.4], rs('seq_sum_k1', 2)), [0, 0], '0.9 is above log 2');
    t.strictSame(weights([0.5, 0.4], rs('seq_mean_k1', 2)), [1, 1], '0.45 is not');
    t.strictSame(weights([0.9, -0.9], rs('seq_mean_k2', 0.4)), [0, 0], 'a square does not cancel');
    t.strictSame(weights([0, 0, 0.9], rs('seq_mean_k2', 0.4)), [1, 1, 1]);
    t.strictSame(weights([0, 0, 0.9], rs('seq_max_k1', 2)), [0, 0, 0]);
    t.strictSame(weights([0, 0, 0.9], rs('seq_sum_k3', 0.5)), [0, 0, 0]);
    for (const mode of rejections) {
      t.strictSame(weights([0, 0], rs(mode, 1.5)), [1, 1], `${mode} keeps what is on policy`);
      t.strictSame(weights([5, 5], rs(mode, 1.5)), [0, 0], `${mode} rejects what is far away`);
      const both = weights([0.1, 5], { mode: 'token', threshold: 2, rejection: { mode, threshold: 50 } });
      t.ok(
        both.every((w) => w === 0 || (w > 1 && w <= 2)),
        `${mode} beside a weight keeps the weight`,
      );
    }
    t.throws(() => refuseDoubleCorrection(true, rs('token_k1', 2)), { code: 'SINKFLEX_LOSS_OPTION', message: /rollout_rs/ });
  },
);

t.test('shaping: the overlong punishment and the KL in the reward', async (t) => {
  const o = { limit: 100, buffer: 20, factor: 0.5 };
  near(
    t,
    [80, 81, 90, 100, 140].map((n) => overlongPenalty(n, o)),
    [0, -0.025, -0.25, -0.5, -0.5],
    1e-12,
  );
  const p = {
    rewards: Float64Array.from([1, 0]),
    cuSeqlens: Int32Array.from([0, 3, 5]),
    mask: Uint8Array.from([0, 1, 1, 0, 1]),
  };
  const old = Float32Array.from([NaN, -1, -2, NaN, -0.5]);
  const reference = Float32Array.from([NaN, -1.5, -1, NaN, -1.25]);
  const kl = { coefficient: 0.1, estimator: 'k1' as const };
  const shaped = shapeRewards(p, { overlong: { limit: 4, buffer: 2, factor: 1 }, kl, maskTruncated: false }, old, reference);
  near(t, [...shaped.rewards], [1 - 0.5 - 0.1 * (0.5 - 1), -0.1 * 0.75], 1e-6);
  near(t, [shaped.metrics['actor/reward_kl_penalty']!, shaped.metrics['reward/overlong_penalty/mean']!], [0.25 / 3, -0.25], 1e-6);
  t.equal(shaped.metrics['reward/overlong_fraction'], 0.5);
  t.strictSame([...p.rewards], [1, 0], 'the score itself stays');
});

t.test('KL and corrections', async (t) => {
  near(t, [klValue('k1', -1, -1.5), klValue('k2', -1, -1.5), klValue('k3', -1, -1.5)], [0.5, 0.125, Math.exp(-0.5) - 0.5], 1e-12);
  t.equal(klValue('k3', -1, -1), 0);
  t.ok(klValue('k3', -50, -1) > 0 && klDerivative('k3', -50, -1) === 0, 'beyond the clamp the value is bounded and the slope is 0');
  t.throws(() => klLossEstimator('k1'), { code: 'SINKFLEX_LOSS_OPTION' });
  t.equal(klLossEstimator('low_var_kl'), 'k3');
  t.strictSame(weights([2], { mode: 'token', threshold: 2 }), [2]);
  t.strictSame(weights([2], { mode: 'decoupled', threshold: 2 }), [0]);
  t.strictSame(weights([NaN, 0], { mode: 'token', threshold: 2 }), [0, 1]);
  near(t, weights([0.5, -0.3, NaN], { mode: 'sequence', threshold: 2 }), [Math.exp(0.2), Math.exp(0.2), 0], 1e-6);
  near(t, weights([0.5, 0.4], { mode: 'sequence', threshold: 2 }), [2, 2], 1e-12);
  t.throws(() => refuseDoubleCorrection(true, { mode: 'token', threshold: 2 }), { code: 'SINKFLEX_LOSS_OPTION' });
  refuseDoubleCorrection(true, { mode: null, threshold: 2 });
  // The weight is a constant: it scales the derivative.
  const rows = [{ ratios: [1.02], a: 1, b: [-1 - Math.log(1.5)] }];
  const weighted = value(batch(rows, 'token-mean'), { ...options, ...switches['decoupled PPO'] });
  near(t, [weighted.dLogprobs[1]!], [-1.02 * 1.5], 1e-5);
});
