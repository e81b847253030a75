// Errors as the command line shows them: one clear message with the fix, exit code 2 where the user can put it right, 1 for failures.
import { isSinkflexError, SinkflexError } from '../kernels/index.ts';

/** Every error code of scripts/, with what a user can do about it. docs/errors.md lists the same set. */
export const commandErrorCodes = {
  SINKFLEX_PRESET_UNKNOWN: 'Name one of the presets that `sinkflex launch --help` lists; a file of your own goes with --config.',
  SINKFLEX_USAGE: 'Call the command as its --help says.',
  SINKFLEX_DATA_CHECKSUM:
    'The file that came is not the one that was asked for: try again, or name a source that has the originals (--from).',
  SINKFLEX_DATA_UNREACHABLE:
    'Check the network, or name another source (--from); a folder that has the data needs no fetching (TAU2_DATA).',
  SINKFLEX_DATA_ABSENT: 'Name a run that has trained or validated (trainer.max_trajectories_per_step above 0).',
  SINKFLEX_LAUNCH:
    'A head or an agent of the run did not come up, or was lost: what it said stands above; `sinkflex launch --dry-run` shows what is started where.',
  SINKFLEX_STUDY: 'One run of the study failed: its own message stands above; run that seed alone with launch.',
  SINKFLEX_BENCH_PEER: 'The rival could not be run: check the Python of SINKFLEX_PEERS, or leave --peers out.',
  SINKFLEX_BENCH_FAILED: 'A measurement in a process of its own ended before it answered: its last words stand in the message.',
} as const;

export type CommandErrorCode = keyof typeof commandErrorCodes;

/** A command was called in a way that cannot work, or a process that it started failed. */
export class CommandError extends SinkflexError {
  constructor(code: CommandErrorCode, message: string, o: { details?: Record<string, unknown>; cause?: unknown } = {}) {
    super(code, message, o);
    this.name = 'CommandError';
  }
}

/** Codes whose cause lies with the user's input or machine: nothing broke, nothing was left half-done. */
const USER_CODES: ReadonlySet<string> = new Set([
  'SINKFLEX_SETTINGS',
  'SINKFLEX_PRESET_UNKNOWN',
  'SINKFLEX_USAGE',
  'SINKFLEX_DATA_CHECKSUM',
  'SINKFLEX_DATA_UNREACHABLE',
  'SINKFLEX_DATA_ABSENT',
  'SINKFLEX_TAU2_DATA',
  'SINKFLEX_OUTPUT_EXISTS',
  'SINKFLEX_OUTPUT_UNWRITABLE',
  'SINKFLEX_DISK_FULL',
  'SINKFLEX_MEMORY_SHORT',
  'SINKFLEX_RESUME',
  'SINKFLEX_ADDON_MISSING',
  'SINKFLEX_ADDON_MISMATCH',
  'SINKFLEX_CPU_UNSUPPORTED',
  'SINKFLEX_BACKEND_MISSING',
  'SINKFLEX_BACKEND_MISMATCH',
  'SINKFLEX_DEVICE_UNAVAILABLE',
  'SINKFLEX_ENVIRONMENT_UNKNOWN',
  'SINKFLEX_ENVIRONMENT_MODULE',
  'SINKFLEX_ENVIRONMENT_OPTION',
  'SINKFLEX_SANDBOX_MISSING',
  'SINKFLEX_SANDBOX_UNSAFE',
  'SINKFLEX_SANDBOX_OPTION',
  'SINKFLEX_REWARD_OPTION',
  'SINKFLEX_REWARD_BUDGET',
  'SINKFLEX_LATENCY_SYNTAX',
  'SINKFLEX_CONFIG_INVALID',
  'SINKFLEX_CONFIG_UNSUPPORTED',
  'SINKFLEX_CHECKPOINT_INVALID',
  'SINKFLEX_CHECKPOINT_DAMAGED',
  'SINKFLEX_MODEL_MISMATCH',
  'SINKFLEX_CHECKPOINT_MISSING',
  'SINKFLEX_CHECKPOINT_CORRUPT',
  'SINKFLEX_CHECKPOINT_TENSOR',
  'SINKFLEX_TOKENIZER',
  'SINKFLEX_CHAT_TEMPLATE',
  'SINKFLEX_EXAMPLE',
  'SINKFLEX_NO_RUN',
  'SINKFLEX_NO_LOG',
]);

/** What plain errors of the operating system mean to a user. */
const ERRNO_ADVICE: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'the port is taken by another program; stop it or choose another port'],
  ['EACCES', 'no permission; choose a place that you may use'],
  ['EROFS', 'the file system is read-only; choose another place with --output'],
  ['EMFILE', 'too many open files; raise the limit (ulimit -n)'],
]);

export interface Explanation {
  text: string;
  exitCode: 1 | 2 | 130;
}

/** One message for people. The stack only with `debug`. */
export function explain(error: unknown, debug = false): Explanation {
  const stack = debug && error instanceof Error ? `\n${chain(error)}` : '';
  if (diskIsFull(error) && !(isSinkflexError(error) && error.code === 'SINKFLEX_DISK_FULL')) {
    const advice = 'free some space, or choose another disk with --output; a run that has a checkpoint goes on with --resume';
    return { text: `SINKFLEX_DISK_FULL: ${(error as Error).message}: ${advice}${stack}`, exitCode: 2 };
  }
  if (isSinkflexError(error)) {
    if (error.code === 'SINKFLEX_ABORTED') return { text: `${error.message}${stack}`, exitCode: 130 };
    const user = USER_CODES.has(error.code);
    const where = user || debug ? '' : '\nThis is a failure, not a wrong setting; --debug shows where it happened.';
    return { text: `${error.code}: ${error.message}${where}${stack}`, exitCode: user ? 2 : 1 };
  }
  if (error instanceof Error) {
    const errno = (error as NodeJS.ErrnoException).code;
    const advice = errno === undefined ? undefined : ERRNO_ADVICE.get(errno);
    if (advice) return { text: `${error.message}: ${advice}${stack}`, exitCode: 2 };
    return { text: `unexpected: ${error.message}${debug ? stack : '\n--debug shows where it happened; please report it.'}`, exitCode: 1 };
  }
  return { text: `unexpected: ${String(error)}`, exitCode: 1 };
}

/** Wherever it was met: in this process, in native code, or in an actor, whose error arrives as text. */
function diskIsFull(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (
      ['ENOSPC', 'EDQUOT'].includes((at as NodeJS.ErrnoException).code ?? '') ||
      /ENOSPC|EDQUOT|no space left on device/i.test(at.message)
    )
      return true;
  }
  return false;
}

function chain(error: Error): string {
  const lines = [error.stack ?? error.message];
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) lines.push(`caused by ${cause.stack ?? cause.message}`);
  return lines.join('\n');
}
