/** Which simulated users there are, by kind. `solo` stands for none: the task is told in full, and the policy acts alone. */
import { ActorsError, didYouMean } from '../../errors.ts';
import type { UserFactory, UserSimulator } from './types.ts';

export const SOLO = 'solo';

const factories = new Map<string, UserFactory>();

/** Adds a kind of user; the name can be taken once. */
export function registerUserSimulator(kind: string, factory: UserFactory): void {
  if (kind === SOLO || factories.has(kind)) {
    throw new ActorsError('SINKFLEX_ENVIRONMENT_TAKEN', `a user simulator "${kind}" is registered already: choose another name`, {
      details: { kind },
    });
  }
  factories.set(kind, factory);
}

export function userKinds(): string[] {
  return [SOLO, ...[...factories.keys()].sort()];
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
