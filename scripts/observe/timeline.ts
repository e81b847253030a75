// `sinkflex timeline`: recorded calls of a living run as a file that Perfetto opens.
import { closeSync, openSync, writeSync } from 'node:fs';
import { Command } from 'commander';
import { buildTimeline, chooseRun, RunObserver, type Timeline } from '../../runtime/index.ts';
import { thousands } from '../text.ts';
import { type AttachOptions, count, missing, withRun } from './attach.ts';

interface TimelineFlags extends AttachOptions {
  output?: string;
}

export function timelineCommand(): Command {
  return withRun(
    new Command('timeline')
      .summary('recorded calls of a living run, as a trace for Perfetto')
      .description(
        'Writes the calls that the workers have recorded (the last 65,536 of each that lives) as a Chrome trace: a track an actor, an arrow from caller to callee.\nThe run must have been started with init({ timeline: true }). Open the file at https://ui.perfetto.dev or chrome://tracing.',
      ),
    '10000',
  )
    .option('-o, --output <file>', 'where to; "-" is standard output (default: timeline-<pid>.json)')
    .action(async (flags: TimelineFlags) => {
      const run = await RunObserver.attach(chooseRun(flags.run));
      try {
        const timeline = buildTimeline(await run.ask('timeline', { timeoutMs: count(flags.timeout ?? '10000', '--timeout') }));
        const file = flags.output ?? (flags.json ? '-' : `timeline-${run.run.pid}.json`);
        write(file, timeline);
        const { calls, arrows, lost, silent } = timeline.otherData;
        const more = [...(lost > 0 ? [`${thousands(lost)} older calls had to make room`] : []), ...missing(silent)];
        const where = file === '-' ? '' : ` in ${file}: open it at https://ui.perfetto.dev`;
        process.stderr.write([`${thousands(calls)} calls, ${thousands(arrows)} arrows${where}`, ...more, ''].join('\n'));
      } finally {
        run.close();
      }
    });
}

/** An event a line, in portions: a trace may be larger than a string. */
function write(file: string, { traceEvents, ...rest }: Timeline): void {
  const fd = file === '-' ? 1 : openSync(file, 'w', 0o644);
  try {
    const head = JSON.stringify(rest);
    writeAll(fd, `${head.slice(0, -1)},"traceEvents":[`);
    for (let i = 0; i < traceEvents.length; i += 1000)
      writeAll(
        fd,
        `${i === 0 ? '\n' : ',\n'}${traceEvents
          .slice(i, i + 1000)
          .map((event) => JSON.stringify(event))
          .join(',\n')}`,
      );
    writeAll(fd, '\n]}\n');
  } finally {
    if (fd !== 1) closeSync(fd);
  }
}

/** A pipe may take a part of it only. */
function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  }
}
