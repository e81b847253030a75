/** Which environments there are, by name. */
import { ActorsError, didYouMean } from '../errors.ts';
import type { ChatFormat, Environment, EnvironmentEntry } from './types.ts';

const entries = new Map<string, EnvironmentEntry>();

/** Adds an environment; a name can be taken once. */
export function register(entry: EnvironmentEntry): void {
  if (entries.has(entry.name)) {
    throw new ActorsError('SINKFLEX_ENVIRONMENT_TAKEN', `an environment named "${entry.name}" is registered already: choose another name`, {
      details: { name: entry.name },
    });
  }
  entries.set(entry.name, entry);
}

/** The entry of that name, or SINKFLEX_ENVIRONMENT_UNKNOWN. */
export function entry(name: string): EnvironmentEntry {
  const found = entries.get(name);
  if (found) return found;
  const near = didYouMean(name, entries.keys());
  const hint = near ? `did you mean "${near}"?` : `known: ${environmentNames().join(', ') || 'none'}`;
  throw new ActorsError('SINKFLEX_ENVIRONMENT_UNKNOWN', `no environment is named "${name}": ${hint}`, { details: { name, near } });
}

/**
 * A new environment.
 *
 * @example const desk = make('desk', { level: 2 })
 */
export function make(name: string, options?: Record<string, unknown>): Environment {
  return entry(name).create(options);
}

export function environmentNames(): string[] {
  return [...entries.keys()].sort();
}

/** The chat format that was made for an environment, or SINKFLEX_ENVIRONMENT_CHAT. */
export function chatFormat(of: EnvironmentEntry): ChatFormat {
  if (of.chat) return of.chat;
  throw new ActorsError('SINKFLEX_ENVIRONMENT_CHAT', `"${of.name}" has no tokenizer of its own: it needs a model whose folder has one`, {
    details: { name: of.name },
  });
}
