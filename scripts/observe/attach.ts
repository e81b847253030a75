// What the commands that look at a run have in common: their options, attaching, watching, and saying what is missing in an answer.
import { setTimeout as delay } from 'node:timers/promises';
import { styleText } from 'node:util';
import { type Command, Option } from 'commander';
import { chooseRun, type Listing, type ListOptions, RunObserver, type Silent } from '../../runtime/index.ts';
import { CommandError } from '../errors.ts';
import { type TableOptions, table, thousands } from '../text.ts';

export interface AttachOptions {
  run?: string;
  json?: boolean;
  timeout?: string;
}

export interface ListFlags extends AttachOptions {
  limit?: string;
  where?: string[];
  watch?: string | true;
}

/** Rows shown unless --limit says otherwise. With --json everything is. */
const DEFAULT_LIMIT = 100;

/** `timeoutMs`: what a worker gets unless told otherwise. */
export function withRun(command: Command, timeoutMs = '1000'): Command {
  return command
    .option('--run <folder or pid>', 'the run to look at; otherwise the only one of yours that is alive on this host')
    .option('--json', 'one JSON document, with everything')
    .addOption(new Option('--timeout <ms>', 'how long a worker may take to answer').default(timeoutMs));
}

export function withList(command: Command): Command {
  return withRun(command)
    .option('--limit <n>', `rows to show, or "all" (default: ${DEFAULT_LIMIT}; with --json all)`)
    .option(
      '--where <field=value>',
      'only rows where that field of the JSON form is (or with != is not) that value; may be repeated',
      (text: string, all: string[] = []) => [...all, text],
    )
    .option('--watch [seconds]', 'show it again and again, every 2 seconds unless told otherwise');
}

export function listOptions(flags: ListFlags): ListOptions {
  const limit =
    flags.limit === undefined
      ? flags.json
        ? undefined
        : DEFAULT_LIMIT
      : flags.limit === 'all'
        ? undefined
        : count(flags.limit, '--limit');
  const where = flags.where?.map((text) => {
    const match = /^([^=!]+)(!?)=(.*)$/s.exec(text);
    if (match === null) throw new CommandError('SINKFLEX_USAGE', `--where "${text}": must be field=value or field!=value`);
    return [match[1]!, match[2]! + match[3]!] as const;
  });
  return {
    timeoutMs: timeout(flags),
    ...(limit === undefined ? {} : { limit }),
    ...(where === undefined ? {} : { where: Object.fromEntries(where) }),
  };
}

export function timeout(flags: AttachOptions): number {
  return count(flags.timeout ?? '1000', '--timeout');
}

export function count(text: string, flag: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new CommandError('SINKFLEX_USAGE', `${flag} "${text}": must be a whole number`);
  return Number(text);
}

/** Attaches, does it, and leaves. With --watch again and again, until the run ends. */
export async function attached(
  flags: AttachOptions & { watch?: string | true },
  look: (run: RunObserver) => Promise<string>,
): Promise<void> {
  endWithReader();
  const seconds = flags.watch === undefined ? 0 : flags.watch === true ? 2 : Number(flags.watch);
  if (!(seconds >= 0)) throw new CommandError('SINKFLEX_USAGE', `--watch "${flags.watch}": must be a number of seconds`);
  const run = await RunObserver.attach(chooseRun(flags.run));
  try {
    for (;;) {
      const text = await look(run);
      const clear = flags.watch !== undefined && !flags.json && process.stdout.isTTY ? '\x1b[2J\x1b[H' : '';
      process.stdout.write(`${clear}${text}\n`);
      if (flags.watch === undefined) return;
      const ended = await Promise.race([run.ended.then(() => true), delay(seconds * 1000, false)]);
      if (ended) {
        process.stderr.write('the run has ended\n');
        return;
      }
    }
  } finally {
    run.close();
  }
}

/** `sinkflex ... | head` ends quietly when head has enough. */
export function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
}

const good = new Set(['alive', 'ok', 'up', 'created', 'value']);
const doubtful = new Set(['pending', 'starting', 'restarting', 'stopping', 'draining', 'preparing', 'rescheduling', 'queued', 'unsent']);
const bad = new Set(['dead', 'blocked', 'stopped', 'ended', 'silent', 'failed', 'unanswered', 'removed']);

/** A table with a header; states in colour on a terminal. */
export function rowsTable(header: readonly string[], rows: readonly (readonly string[])[], right: readonly number[]): string {
  const paint = (padded: string, text: string): string => {
    const colour = good.has(text) ? 'green' : doubtful.has(text) ? 'yellow' : bad.has(text) ? 'red' : undefined;
    return colour === undefined ? padded : styleText(colour, padded);
  };
  const options: TableOptions = { header: true, right, ...(coloured() ? { paint } : {}) };
  return table([header, ...rows], options);
}

export function coloured(): boolean {
  return process.stdout.isTTY === true && (process.env.NO_COLOR ?? '') === '';
}

/** `3 actors`, or `100 of 1,234 actors`, and how to see the rest; workers whose part is missing. */
export function footer(what: string, { items, total, silent }: Listing<unknown>): string {
  const shown =
    items.length === total
      ? `${thousands(total)} ${total === 1 ? what.replace(/s$/, '') : what}`
      : `${thousands(items.length)} of ${thousands(total)} ${what} (--limit all shows them all)`;
  return [shown, ...missing(silent)].join('\n');
}

export function missing(silent: readonly Silent[]): string[] {
  return silent.map(({ name, pid, why }) => {
    const what = {
      blocked: 'its event loop is blocked; sinkflex stack may tell where',
      starting: 'it is starting',
      stopped: 'its process is stopped',
      ended: 'it has just ended',
      silent: 'nobody knows why',
    }[why];
    return `no answer from ${name}${pid === undefined ? '' : ` (pid ${pid})`}: ${what}. What only it knows is missing here`;
  });
}
