// Label selectors: `a`, `!a`, `in(a,b)`, `!in(a,b)`. A negated one is also met by a node that does not have the label.

interface Term {
  readonly key: string;
  readonly values: readonly string[];
  readonly negated: boolean;
}

export interface Selector {
  /** Canonical text; equal selectors have equal ones. '' selects every node. */
  readonly key: string;
  readonly terms: readonly Term[];
}

export const EVERY_NODE: Selector = { key: '', terms: [] };

function parse(key: string, text: string): Term {
  const negated = text.startsWith('!');
  const rest = negated ? text.slice(1) : text;
  const list = /^in\((.*)\)$/.exec(rest)?.[1];
  if (list === undefined) return { key, values: [rest], negated };
  const values = list.split(',').map((value) => value.trim());
  return { key, values: [...new Set(values)].filter((value) => value !== '').sort(), negated };
}

export function selectorOf(labels: Readonly<Record<string, string>>): Selector {
  const keys = Object.keys(labels);
  if (keys.length === 0) return EVERY_NODE;
  const terms = keys.sort().map((key) => parse(key, labels[key]!));
  return { key: JSON.stringify(terms.map((term) => [term.key, term.negated, ...term.values])), terms };
}

function meets(term: Term, labels: Readonly<Record<string, string>>): boolean {
  const value = Object.hasOwn(labels, term.key) ? labels[term.key]! : undefined;
  return (value !== undefined && term.values.includes(value)) !== term.negated;
}

export function matches(selector: Selector, labels: Readonly<Record<string, string>>): boolean {
  for (const term of selector.terms) if (!meets(term, labels)) return false;
  return true;
}

/** The terms that a node does not meet, for people: `zone is b, not a`. */
export function unmet(selector: Selector, labels: Readonly<Record<string, string>>): string[] {
  return selector.terms
    .filter((term) => !meets(term, labels))
    .map((term) => {
      const has = Object.hasOwn(labels, term.key) ? `${term.key} is ${labels[term.key]}` : `it has no ${term.key}`;
      const wanted = term.values.length === 1 ? term.values[0] : `one of ${term.values.join(', ')}`;
      return term.negated ? `${has}, which is excluded` : `${has}, not ${wanted}`;
    });
}
