// The life of one actor as a pure state machine: (life, event, now) -> (life, effects). No clock, no process, no transport in here,
// so that the same code runs in production, in property tests and in a simulation.

export interface RestartPolicy {
  maxRestarts: number;
  /** Only restarts within this window count (intensity, as in OTP). */
  windowMs: number;
  backoffMs: number;
  backoffMaxMs: number;
}

export type Status = 'starting' | 'alive' | 'restarting' | 'stopping' | 'dead';

export interface Life {
  readonly status: Status;
  /** Counts from 1; never reused. Everything that a worker says is fenced by it. */
  readonly incarnation: number;
  /** Restarts in all. */
  readonly restarts: number;
  /** Times of the restarts that still count against the budget, oldest first. */
  readonly recent: readonly number[];
  /** What a wanted end of the current incarnation leads to; undefined: nobody asked for its end. */
  readonly intent: 'kill' | 'restart' | undefined;
  /** Dead because the budget is spent or the constructor failed, not because somebody asked for it. */
  readonly failed: boolean;
  readonly policy: RestartPolicy;
}

export type ActorEvent =
  | { type: 'started'; incarnation: number }
  /** `preempted`: its host went away; that is not counted. `hopeless`: the next incarnation would end in the same way. */
  | { type: 'died'; incarnation: number; preempted?: boolean; hopeless?: boolean }
  | { type: 'backoff-elapsed'; incarnation: number }
  | { type: 'kill'; restart: boolean };

export type ActorEffect =
  | { type: 'start'; incarnation: number }
  /** Ask the incarnation to stop, then make sure that it has. */
  | { type: 'terminate'; incarnation: number }
  /** Deliver backoff-elapsed for that incarnation after delayMs. */
  | { type: 'wait'; incarnation: number; delayMs: number }
  | { type: 'announce' };

export interface Step {
  life: Life;
  effects: ActorEffect[];
}

const NONE: readonly number[] = [];

export function born(policy: RestartPolicy): Step {
  const life: Life = { status: 'starting', incarnation: 1, restarts: 0, recent: NONE, intent: undefined, failed: false, policy };
  return { life, effects: [{ type: 'start', incarnation: 1 }, { type: 'announce' }] };
}

function again(life: Life, now: number, counted: boolean, delayMs: number): Step {
  const incarnation = life.incarnation + 1;
  const next: Life = {
    ...life,
    status: 'restarting',
    incarnation,
    restarts: life.restarts + 1,
    recent: counted ? [...life.recent, now] : life.recent,
    intent: undefined,
  };
  return { life: next, effects: [{ type: 'announce' }, { type: 'wait', incarnation, delayMs }] };
}

function dead(life: Life, failed: boolean): Step {
  return { life: { ...life, status: 'dead', failed, intent: undefined }, effects: [{ type: 'announce' }] };
}

function died(life: Life, now: number, preempted: boolean, hopeless: boolean): Step {
  if (life.intent === 'kill') return dead(life, false);
  if (life.intent === 'restart') return again(life, now, false, 0);
  if (hopeless) return dead(life, true);
  const { maxRestarts, windowMs, backoffMs, backoffMaxMs } = life.policy;
  // Without a budget nobody expects the actor to lose its state and come back, not even from a host that was drained.
  if (preempted && maxRestarts > 0) return again(life, now, false, 0);
  const recent = life.recent.filter((at) => now - at < windowMs);
  if (recent.length >= maxRestarts) return dead({ ...life, recent }, true);
  return again({ ...life, recent }, now, true, Math.min(backoffMs * 2 ** recent.length, backoffMaxMs));
}

const nothing = (life: Life): Step => ({ life, effects: [] });

export function advance(life: Life, event: ActorEvent, now: number): Step {
  if (life.status === 'dead') return nothing(life);
  if (event.type === 'kill') {
    const intent = life.intent === 'kill' || !event.restart ? 'kill' : 'restart';
    // Between incarnations there is nothing to end: give up, or go on waiting for the next one.
    if (life.status === 'restarting') return intent === 'kill' ? dead(life, false) : nothing(life);
    if (life.status === 'stopping') return nothing({ ...life, intent });
    return {
      life: { ...life, status: 'stopping', intent },
      effects: [{ type: 'announce' }, { type: 'terminate', incarnation: life.incarnation }],
    };
  }
  if (event.incarnation !== life.incarnation) return nothing(life);
  switch (event.type) {
    case 'started':
      return life.status === 'starting' ? { life: { ...life, status: 'alive' }, effects: [{ type: 'announce' }] } : nothing(life);
    case 'backoff-elapsed':
      return life.status === 'restarting'
        ? { life: { ...life, status: 'starting' }, effects: [{ type: 'start', incarnation: life.incarnation }, { type: 'announce' }] }
        : nothing(life);
    case 'died':
      return life.status === 'restarting' ? nothing(life) : died(life, now, event.preempted ?? false, event.hopeless ?? false);
  }
}
