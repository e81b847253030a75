/**
 * KL(pi_theta || pi_ref) a token, from u = f - l: k1 = -u, k2 = u^2 / 2, k3 = exp(u) - u - 1 (never negative). The difference is clamped to
 * [-20, 20]. k1 has a gradient of mean zero, so as a loss it is refused.
 */
import { ActorsError } from '../errors.ts';
import { logRatioLimit } from './policy-losses.ts';

export type KlEstimator = 'k1' | 'k2' | 'k3';

/** verl's names: `kl` is k1, `mse` is k2, `low_var_kl` is k3. */
export function klEstimator(name: string): KlEstimator {
  const alias = { kl: 'k1', mse: 'k2', low_var_kl: 'k3' } as const;
  if (Object.hasOwn(alias, name)) return alias[name as keyof typeof alias];
  if (name === 'k1' || name === 'k2' || name === 'k3') return name;
  throw new ActorsError('SINKFLEX_LOSS_OPTION', `actor.kl_loss_type=${name} is not known: use k2, k3 or low_var_kl.`);
}

/** The estimator as a loss; k1 is refused. */
export function klLossEstimator(name: string): 'k2' | 'k3' {
  const estimator = klEstimator(name);
  if (estimator === 'k1') {
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      'actor.kl_loss_type=k1 has no useful gradient as a loss (its expectation is 0): use k3 (low_var_kl) or k2.',
    );
  }
  return estimator;
}

export function klValue(estimator: KlEstimator, l: number, f: number): number {
  const u = Math.min(logRatioLimit, Math.max(-logRatioLimit, f - l));
  if (estimator === 'k1') return -u;
  return estimator === 'k2' ? (u * u) / 2 : Math.expm1(u) - u;
}

/** d(kl)/dl */
export function klDerivative(estimator: 'k2' | 'k3', l: number, f: number): number {
  const u = f - l;
  if (Math.abs(u) >= logRatioLimit) return 0;
  return estimator === 'k2' ? -u : -Math.expm1(u);
}
