// `sinkflex logs`: what actors of a living run have written.
import { Command } from 'commander';
import { chooseRun, RunObserver } from '../../runtime/index.ts';
import { bytes, thousands } from '../text.ts';
import { type AttachOptions, attached, count, endWithReader, rowsTable, withRun } from './attach.ts';

interface LogFlags extends AttachOptions {
  tail: string;
  follow?: boolean;
}

export function logsCommand(): Command {
  return withRun(
    new Command('logs')
      .summary('what an actor has written, and with -f what it writes')
      .description(
        'Prints the last lines that an actor wrote to stdout and stderr, all its incarnations, each with its time; without a name, which logs there are.\nActors with isolation "shared" write into the log of their worker.',
      )
      .argument('[actor]', 'name of an actor, or of a shared worker (shared-<n>)'),
  )
    .option('--tail <n>', 'how many lines, or "all"', '100')
    .option('-f, --follow', 'go on with new lines as they are written')
    .action(async (actor: string | undefined, flags: LogFlags) => {
      if (actor === undefined) await attached(flags, (run) => files(run, flags));
      else await lines(actor, flags);
    });
}

async function files(run: RunObserver, flags: LogFlags): Promise<string> {
  const found = await run.ask('logs');
  if (flags.json) return JSON.stringify({ items: found, total: found.length });
  if (found.length === 0) return 'no actor has written anything';
  const rows = found.map(({ name, pid, bytes: size, lostBytes, path }) => [
    name,
    String(pid),
    bytes(size),
    lostBytes === 0 ? '' : bytes(lostBytes),
    path,
  ]);
  return rowsTable(['name', 'pid', 'size', 'made room', 'file'], rows, [1, 2, 3]);
}

async function lines(actor: string, flags: LogFlags): Promise<void> {
  endWithReader();
  const tail = flags.tail === 'all' ? undefined : count(flags.tail, '--tail');
  const print = (line: string): void => void process.stdout.write(`${flags.json ? JSON.stringify(parsed(line)) : line}\n`);
  const run = await RunObserver.attach(chooseRun(flags.run));
  try {
    const options = { name: actor, ...(tail === undefined ? {} : { count: tail }) };
    const followed = flags.follow ? await run.follow(actor, tail) : { tail: await run.ask('tail', options), listen: undefined };
    const { lines: last, total, lostBytes } = followed.tail;
    if (lostBytes > 0) process.stderr.write(`${bytes(lostBytes)} of older lines had to make room\n`);
    if (last.length < total)
      process.stderr.write(`the last ${thousands(last.length)} of ${thousands(total)} lines (--tail all shows them all)\n`);
    for (const line of last) print(line);
    if (followed.listen === undefined) return;
    followed.listen((more, gaps) => {
      if (gaps > 0) process.stderr.write('lines are missing here: they had to make room before this terminal took them\n');
      for (const line of more) print(line);
    });
    await run.ended;
    process.stderr.write('the run has ended\n');
  } finally {
    run.close();
  }
}

function parsed(line: string): { time: string; stream: string; line: string } {
  const [time = '', stream = ''] = line.split(' ', 2);
  return { time, stream, line: line.slice(time.length + stream.length + 2) };
}
