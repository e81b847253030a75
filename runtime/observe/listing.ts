// Lists as people ask for them: those that match, up to a limit, and how many there are.
import { RuntimeFailure } from '../api/errors.ts';
import type { Listing, ListOptions, Silent } from './facts.ts';
import { checkFields, type ListName } from './fields.ts';

/** Fields of nested records are named with dots: `labels.zone`. */
function fieldOf(item: unknown, path: string): unknown {
  let value = item;
  for (const part of path.split('.')) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Record<string, unknown>)[part];
  }
  return value;
}

function textOf(value: unknown): string {
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value ?? '');
}

export function matches(item: object, where: Record<string, string>): boolean {
  return Object.entries(where).every(([path, wanted]) => {
    const text = textOf(fieldOf(item, path));
    return wanted.startsWith('!') ? text !== wanted.slice(1) : text === wanted;
  });
}

/** `total`: how many there are, if `items` is only their beginning. */
export function listing<T extends object>(
  list: ListName,
  items: readonly T[],
  options: ListOptions,
  silent: Silent[] = [],
  total = items.length,
): Listing<T> {
  const limit = options.limit ?? Number.POSITIVE_INFINITY;
  if (!(limit >= 0)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `limit is ${limit}; it must be a number of at least 0`);
  const { where } = options;
  if (where !== undefined) checkFields(list, where);
  const found = where === undefined || Object.keys(where).length === 0 ? items : items.filter((item) => matches(item, where));
  const all = found === items ? total : found.length;
  return { items: found.length > limit ? found.slice(0, limit) : [...found], total: all, silent };
}
