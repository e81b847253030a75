/** Which simulated users there are, by kind. `solo` stands for none: the task is told in full, and the policy acts alone. */
import { ActorsError, didYouMean } from '../../errors.ts';
import type { UserFactory, UserSimulator, UserTraits } from './types.ts';

export const SOLO = 'solo';

const factories = new Map<string, UserFactory & UserTraits>();

/** Adds a kind of user; the name can be taken once. */
export function registerUserSimulator(kind: string, factory: UserFactory, traits: UserTraits = {}): void {
  if (kind === SOLO || factories.has(kind)) {
    throw new ActorsError('SINKFLEX_ENVIRONMENT_TAKEN', `a user simulator "${kind}" is registered already: choose another name`, {
      details: { kind },
    });
  }
  factories.set(
    kind,
    Object.assign((options: Record<string, unknown>) => factory(options), traits),
  );
}

export function userKinds(): string[] {
  return [SOLO, ...[...factories.keys()].sort()];
}

/** Why a kind of user does not play a task; undefined where it does, as most kinds do all. */
export function userRefuses(kind: string, domain: string, taskId: string, options: Record<string, unknown> = {}): string | undefined {
  return factories.get(kind)?.refuses?.(domain, taskId, options);
}

/** A user of that kind; undefined for `solo`. SINKFLEX_ENVIRONMENT_OPTION for a kind that nobody registered. */
export function makeUser(kind: string, options: Record<string, unknown> = {}): UserSimulator | undefined {
  if (kind === SOLO) return undefined;
  const factory = factories.get(kind);
  if (factory) return factory(options);
  const near = didYouMean(kind, userKinds());
  throw new ActorsError(
    'SINKFLEX_ENVIRONMENT_OPTION',
    `option user=${JSON.stringify(kind)}: there is no such user; ${near ? `did you mean "${near}"?` : `known: ${userKinds().join(', ')}`}`,
    { details: { option: 'user', value: kind } },
  );
}
