/** Rows of environments that say nothing of their own about them: which seed, which reset options, how hard. */
import { z } from 'zod';
import { didYouMean } from '../errors.ts';
import type { TaskRow } from './types.ts';

const uint32 = z
  .int()
  .min(0)
  .max(2 ** 32 - 1);
const level = z.int().min(0).max(1000);
const row = z.strictObject({ seed: uint32.optional(), options: z.record(z.string(), z.unknown()).optional(), level: level.optional() });

export function readPlainRow(given: Record<string, unknown>): TaskRow {
  const { seed, options, level } = parseRow(row, given);
  return {
    ...(seed === undefined ? {} : { seed }),
    ...(options === undefined ? {} : { options }),
    ...(level === undefined ? {} : { level }),
  };
}

/** Checks a row against a schema; the Error names the first column that is wrong, and what was meant. */
export function parseRow<T extends z.ZodObject>(schema: T, given: Record<string, unknown>): z.output<T> {
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  if (issue.code === 'unrecognized_keys') {
    const key = issue.keys[0]!;
    const known = Object.keys(schema.shape);
    const near = didYouMean(key, known);
    throw new Error(
      `there is no column ${[...issue.path, key].join('.')}: ${near ? `did you mean ${near}?` : `known: ${known.join(', ')}`}`,
    );
  }
  throw new Error(`${issue.path.join('.') || 'row'}: ${issue.message}`);
}
