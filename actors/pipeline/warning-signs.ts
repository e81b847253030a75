/**
 * Watches the metrics of a run for the ways in which learning goes wrong, and says once what it sees and what to try. It changes nothing.
 * A sign that stays is told again only after it was gone, so that a long run does not repeat itself. Pure: a function of what it is shown.
 */
import type { Metrics } from '../trainer/index.ts';
import { type MetricRecord, TRAINING_STEP, validationPoints } from './metrics.ts';
import { mean, median } from './statistics.ts';

export interface SignOptions {
  mode: 'sync' | 'async';
}

/** Names of the signs, as they stand in the metrics (`signs/<name>`: 1 at the steps that show one). */
export const signNames = [
  'not_finite',
  'gradient_spike',
  'policy_jump',
  'entropy_collapse',
  'entropy_explosion',
  'no_spread',
  'sampling_mismatch',
  'reward_hacking',
  'cut_off',
] as const;
export type Sign = (typeof signNames)[number];

export interface SignReport {
  sign: Sign;
  text: string;
}

/** Steps that a mean is taken over, and that a state has to last. */
const WINDOW = 10;
const HISTORY = 50;

export class WarningSigns {
  readonly #mode: SignOptions['mode'];
  readonly #active = new Set<Sign>();
  readonly #gradients: number[] = [];
  readonly #recent: Record<'spread' | 'entropy' | 'score' | 'cut', number[]> = { spread: [], entropy: [], score: [], cut: [] };
  #firstEntropy: number | undefined;
  #firstScore = 0;
  #validated: { score: number; half: number; training: number } | undefined;
  #hacking: string | undefined;

  constructor(o: SignOptions) {
    this.#mode = o.mode;
  }

  /** As it stood after these records of metrics.jsonl: a run that goes on sees the same signs as one that was never stopped. */
  static after(records: readonly MetricRecord[], o: SignOptions): WarningSigns {
    const signs = new WarningSigns(o);
    for (const r of records) {
      const [point] = validationPoints([r]);
      if (point) signs.validation(point.score.mean, (point.score.high - point.score.low) / 2);
      else if (r[TRAINING_STEP] !== undefined) signs.step(r);
    }
    return signs;
  }

  /** One training step; what is new to be said, and the signs that this step shows. */
  step(m: Metrics): { reports: SignReport[]; metrics: Metrics } {
    const seen = new Map<Sign, string>();
    const [score, entropy] = [m['training/score'] ?? 0, m['actor/entropy']];
    push(this.#recent.score, score, WINDOW);
    if (m.frac_reward_zero_std !== undefined) push(this.#recent.spread, m.frac_reward_zero_std, WINDOW);
    if (m['response_length/clip_ratio'] !== undefined) push(this.#recent.cut, m['response_length/clip_ratio'], WINDOW);
    this.#numbers(m, seen);
    if (entropy !== undefined && Number.isFinite(entropy)) this.#entropy(entropy, seen);
    const now = mean(this.#recent.score);
    if (this.#recent.spread.length === WINDOW && mean(this.#recent.spread) >= 0.9 && now < 0.95) {
      const which =
        now < 0.05
          ? 'none solves its task: the tasks are too hard for now (a lower env.level, a longer warm start, larger groups rollout.n)'
          : 'nearly all agree: larger groups (rollout.n), a higher rollout.temperature, or algorithm.filter_groups.enable=true, which draws others instead';
      seen.set(
        'no_spread',
        `in ${percent(mean(this.#recent.spread))} of the groups every sample has the same reward, and these teach nothing; ${which}`,
      );
    }
    const gap = m['training/rollout_probs_diff_mean'];
    const limit = this.#mode === 'sync' ? 1e-3 : 0.05;
    if (gap !== undefined && gap > limit) {
      seen.set(
        'sampling_mismatch',
        `the sampling policy differs from the trained one by ${gap.toPrecision(2)} a token on average${this.#mode === 'sync' ? ', though synchronous mode has one policy: a defect of the engine or of the tokens' : ': lower async_training.staleness_threshold or actor.optim.lr, or correct for it (algorithm.rollout_correction.rollout_is)'}`,
      );
    }
    if (this.#recent.cut.length === WINDOW && mean(this.#recent.cut) > 0.5) {
      seen.set(
        'cut_off',
        `${percent(mean(this.#recent.cut))} of the episodes end at rollout.max_model_len: raise it, or punish length (reward.overlong_buffer.enable=true)`,
      );
    }
    if (this.#hacking !== undefined) seen.set('reward_hacking', this.#hacking);
    return this.#tell(seen);
  }

  /** A validation: its score with the half width of its interval. */
  validation(score: number, half: number): void {
    if (!Number.isFinite(score)) return;
    const training = mean(this.#recent.score);
    const before = this.#validated;
    if (before && Number.isFinite(training) && Number.isFinite(before.training)) {
      const rises = training - before.training > 0.1;
      const falls = before.score - score > before.half + half;
      this.#hacking =
        rises && falls
          ? `the training score rose from ${before.training.toFixed(3)} to ${training.toFixed(3)} while the held-out score fell from ${before.score.toFixed(3)} to ${score.toFixed(3)}: the policy may exploit the reward or the training tasks; read transcripts/ and report.html, raise actor.kl_loss_coef, or go back to an earlier checkpoint`
          : undefined;
    }
    this.#validated = { score, half, training };
  }

  #numbers(m: Metrics, seen: Map<Sign, string>): void {
    const gradient = m['actor/grad_norm'];
    const bad = m['training/not_finite_tokens'] ?? 0;
    if (bad > 0 || [gradient, m['actor/loss']].some((v) => v !== undefined && !Number.isFinite(v))) {
      seen.set(
        'not_finite',
        `${bad > 0 ? `${bad} tokens have a log-probability that is no finite number and were left out` : 'loss or gradient is no finite number'}: lower actor.optim.lr and go back to the last checkpoint`,
      );
    }
    if (gradient !== undefined && Number.isFinite(gradient)) {
      const usual = median(this.#gradients);
      if (this.#gradients.length >= WINDOW && gradient > 30 * usual && gradient > 1) {
        seen.set(
          'gradient_spike',
          `the gradient norm is ${gradient.toPrecision(3)}, ${Math.round(gradient / usual)} times its median: if it comes again, lower actor.optim.lr or actor.grad_clip`,
        );
      }
      push(this.#gradients, gradient, HISTORY);
    }
    const moved = m['actor/ppo_kl'];
    if (moved !== undefined && Math.abs(moved) > 1) {
      seen.set(
        'policy_jump',
        `one step moved the policy by ${moved.toPrecision(2)} nats a token (actor/ppo_kl): lower actor.optim.lr or actor.ppo_epochs`,
      );
    }
  }

  #entropy(entropy: number, seen: Map<Sign, string>): void {
    push(this.#recent.entropy, entropy, WINDOW);
    if (this.#recent.entropy.length < WINDOW) return;
    const now = mean(this.#recent.entropy);
    const score = mean(this.#recent.score);
    if (this.#firstEntropy === undefined) {
      this.#firstEntropy = now;
      this.#firstScore = score;
    }
    const first = this.#firstEntropy;
    // A policy that has learnt its tasks is sure of itself, and may be: certainty without success is what cannot recover.
    if (now < 0.1 * first && score < 0.9 && score - this.#firstScore < 0.1) {
      seen.set(
        'entropy_collapse',
        `the entropy fell from ${first.toPrecision(2)} to ${now.toPrecision(2)} while the score stayed at ${score.toFixed(3)}: the policy no longer explores; raise actor.entropy_coeff, actor.clip_ratio_high or rollout.temperature, or lower actor.optim.lr`,
      );
    }
    if (now > 3 * first && now - first > 0.5) {
      seen.set(
        'entropy_explosion',
        `the entropy rose from ${first.toPrecision(2)} to ${now.toPrecision(2)}: the policy falls apart; lower actor.optim.lr or actor.entropy_coeff, raise actor.kl_loss_coef`,
      );
    }
  }

  #tell(seen: ReadonlyMap<Sign, string>): { reports: SignReport[]; metrics: Metrics } {
    const reports: SignReport[] = [];
    const metrics: Metrics = {};
    for (const sign of signNames) {
      const text = seen.get(sign);
      if (text === undefined) this.#active.delete(sign);
      else {
        metrics[`signs/${sign}`] = 1;
        if (!this.#active.has(sign)) reports.push({ sign, text });
        this.#active.add(sign);
      }
    }
    return { reports, metrics };
  }
}

const percent = (share: number): string => `${Math.round(100 * share)} %`;

function push(values: number[], value: number, limit: number): void {
  values.push(value);
  if (values.length > limit) values.shift();
}
