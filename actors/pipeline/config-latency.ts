// The small language of `env.latency`: none, fixed(50ms), uniform(min=..,max=..), exponential(mean=..), lognormal(mean=..,sigma=..).

export type Latency =
  | { kind: 'none' }
  | { kind: 'fixed'; ms: number }
  | { kind: 'uniform'; minMs: number; maxMs: number }
  | { kind: 'exponential'; meanMs: number }
  | { kind: 'lognormal'; meanMs: number; sigma: number };

const FORMS = 'none, fixed(50ms), uniform(min=10ms,max=90ms), exponential(mean=200ms) or lognormal(mean=200ms,sigma=1.0)';

/** @example parseLatency('lognormal(mean=200ms,sigma=1.0)') // { kind: 'lognormal', meanMs: 200, sigma: 1 } */
export function parseLatency(text: string): Latency {
  const refuse = (why: string): never => {
    throw new Error(`${why}; allowed: ${FORMS}`);
  };
  const trimmed = text.trim();
  if (trimmed === 'none') return { kind: 'none' };
  const call = /^([a-z]+)\((.*)\)$/.exec(trimmed);
  if (!call) return refuse('not a latency');
  const values = new Map<string, string>();
  for (const part of call[2]!.split(',').map((p) => p.trim())) {
    const [name, value] = part.includes('=') ? part.split('=', 2) : ['', part];
    values.set(name!.trim(), (value ?? '').trim());
  }
  const take = (name: string): string => {
    const value = values.get(name);
    values.delete(name);
    return value ?? refuse(`${call[1]} needs ${name === '' ? 'a time' : name}`);
  };
  const ms = (name: string): number => {
    const raw = take(name);
    const match = /^(\d+(?:\.\d+)?)(ms|s)$/.exec(raw);
    return match ? Number(match[1]) * (match[2] === 's' ? 1000 : 1) : refuse(`"${raw}" is not a time such as 200ms or 0.5s`);
  };
  const number = (name: string): number => {
    const value = Number(take(name));
    return value >= 0 && Number.isFinite(value) ? value : refuse(`${name} must be a number >= 0`);
  };
  const done = (latency: Latency): Latency =>
    values.size === 0 ? latency : refuse(`${call[1]} knows no ${[...values.keys()][0] || 'second time'}`);
  switch (call[1]) {
    case 'fixed':
      return done({ kind: 'fixed', ms: ms('') });
    case 'uniform': {
      const [minMs, maxMs] = [ms('min'), ms('max')];
      return minMs <= maxMs ? done({ kind: 'uniform', minMs, maxMs }) : refuse('min is above max');
    }
    case 'exponential':
      return done({ kind: 'exponential', meanMs: ms('mean') });
    case 'lognormal':
      return done({ kind: 'lognormal', meanMs: ms('mean'), sigma: number('sigma') });
    default:
      return refuse(`there is no distribution "${call[1]}"`);
  }
}
