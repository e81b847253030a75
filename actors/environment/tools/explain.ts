/** What is wrong with the arguments of a call, in words that a policy can act on. */
import type { z } from 'zod';
import { didYouMean } from '../../errors.ts';

type Issue = z.core.$ZodIssue;

/** All problems of one call, one sentence each. */
export function explainIssues(tool: string, parameters: z.ZodObject, args: unknown, issues: readonly Issue[]): string {
  if (typeof args !== 'object' || args === null || Array.isArray(args)) {
    return `${tool}: the arguments must be an object, not ${shown(args)}.`;
  }
  return `${tool}: ${issues.map((issue) => sentence(parameters, args as Record<string, unknown>, issue)).join(' ')}`;
}

function sentence(parameters: z.ZodObject, args: Record<string, unknown>, issue: Issue): string {
  const where = issue.path.map((part) => (typeof part === 'number' ? `[${part}]` : String(part))).join('.');
  if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => unknownKey(parameters, issue.path, key, args)).join(' ');
  const value = at(args, issue.path);
  if (value === undefined) return `${where.replaceAll('.[', '[')} is missing${hint(parameters, issue.path)}.`;
  const wanted = describe(issue);
  return `${where.replaceAll('.[', '[')} ${wanted}, not ${shown(value)}.`;
}

function unknownKey(parameters: z.ZodObject, path: readonly PropertyKey[], key: string, args: Record<string, unknown>): string {
  const inside = path.length > 0 ? `${path.map(String).join('.')}.` : '';
  const known = path.length > 0 ? [] : Object.keys(parameters.shape);
  const near = didYouMean(
    key,
    known.filter((name) => !Object.hasOwn(args, name)),
  );
  const rest = near ? `: did you mean "${near}"?` : known.length > 0 ? `: it takes ${known.join(', ')}.` : '.';
  return `there is no argument "${inside}${key}"${rest}`;
}

function describe(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_type':
      return `must be ${article(issue.expected === 'int' ? 'integer' : issue.expected)}`;
    case 'invalid_value':
      return issue.values.length === 1 ? `must be ${shown(issue.values[0])}` : `must be one of ${issue.values.map(shown).join(', ')}`;
    case 'too_small':
      return `must be ${bound(issue.origin, issue.inclusive === false ? 'more than' : 'at least', issue.minimum)}`;
    case 'too_big':
      return `must be ${bound(issue.origin, issue.inclusive === false ? 'less than' : 'at most', issue.maximum)}`;
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}`;
    case 'invalid_format':
      return issue.pattern ? `must match ${issue.pattern}` : `must be a valid ${issue.format}`;
    default:
      return `is refused (${issue.message})`;
  }
}

function bound(origin: string, how: string, n: number | bigint): string {
  if (origin === 'string') return `${how} ${n} characters long`;
  if (origin === 'array' || origin === 'set') return `${how} ${n} items long`;
  return `${how} ${n}`;
}

function article(type: string): string {
  if (type === 'null' || type === 'undefined') return type;
  return /^[aeio]/.test(type) ? `an ${type}` : `a ${type}`;
}

function hint(parameters: z.ZodObject, path: readonly PropertyKey[]): string {
  const text = path.length === 1 ? parameters.shape[String(path[0])]?.description : undefined;
  return text ? ` (${text.replace(/\.$/, '')})` : '';
}

function at(value: unknown, path: readonly PropertyKey[]): unknown {
  let here = value;
  for (const part of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, part)) return undefined;
    here = (here as Record<PropertyKey, unknown>)[part];
  }
  return here;
}

/** As JSON, cut: what a policy wrote can be long. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
