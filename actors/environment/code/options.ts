/** Options of the code environment, checked when it is made. */
import { z } from 'zod';
import { ActorsError, didYouMean } from '../../errors.ts';
import { checkSandboxProvider, LIMIT_NAMES } from '../../sandbox/index.ts';
import { LEVELS } from './tasks.ts';

const Options = z.strictObject({
  /** Difficulty of the generated tasks. */
  level: z.int().min(1).max(LEVELS).default(1),
  /** Turns of the agent; the episode is truncated after them. */
  maxTurns: z.int().min(1).max(1000).default(8),
  /** `hidden_tests`: generated tasks. `stdout`: the three of the textbook. */
  tasks: z.enum(['hidden_tests', 'stdout']).default('hidden_tests'),
  /** Of the tasks; `both`: by the task's seed. */
  language: z.enum(['python', 'javascript', 'both']).default('python'),
  /** Provider, by name. */
  sandbox: z.string().default('local'),
  /** Limits that the local sandbox may lack, by name. */
  waive: z.array(z.enum(LIMIT_NAMES)).default([]),
  /** Sandboxes of a process that are kept started. */
  warm: z.int().min(0).max(256).default(4),
  /** Of one program, milliseconds. */
  timeoutMs: z.int().min(10).max(600_000).default(10_000),
  /** Characters of a program's output that the agent sees, from its end. */
  outputLimit: z.int().min(1).max(65_536).default(500),
  /** Memory of one sandbox, MiB. */
  memoryMb: z.int().min(64).max(65_536).default(256),
});
export type CodeOptions = z.output<typeof Options>;

export function codeOptions(given: Record<string, unknown> = {}): CodeOptions {
  const parsed = Options.safeParse(given);
  if (parsed.success) {
    checkSandboxProvider(parsed.data.sandbox);
    return parsed.data;
  }
  const issue = parsed.error.issues[0]!;
  const unknown = issue.code === 'unrecognized_keys' ? issue.keys[0]! : undefined;
  const name = unknown ?? issue.path.map(String).join('.');
  const near = unknown === undefined ? undefined : didYouMean(unknown, Object.keys(Options.shape));
  const why =
    unknown === undefined
      ? issue.message
      : near
        ? `there is no such option; did you mean "${near}"?`
        : `known: ${Object.keys(Options.shape).join(', ')}`;
  throw new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `code: option ${name}=${JSON.stringify(given[name])}: ${why}`, {
    details: { environment: 'code', option: name },
  });
}
