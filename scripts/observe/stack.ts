// `sinkflex stack`: where the event loop of an actor is, also of one that does not answer.
import { Command } from 'commander';
import { stackText } from '../../runtime/index.ts';
import { type AttachOptions, attached, timeout, withRun } from './attach.ts';

export function stackCommand(): Command {
  return withRun(
    new Command('stack')
      .summary('the JavaScript stack of a living actor, also of a blocked one')
      .description(
        'Prints what the event loop of an actor is executing, innermost call first. "idle": nothing ran. "silent": no answer, as from a long native call or a stopped process.',
      )
      .argument('<actor>', 'name of an actor, or of a shared worker (shared-<n>)'),
  )
    .option('--watch [seconds]', 'show it again and again, every 2 seconds unless told otherwise')
    .action(async (actor: string, flags: AttachOptions & { watch?: string | true }) => {
      await attached(flags, async (run) => {
        const sample = await run.ask('stack', { name: actor, timeoutMs: timeout(flags) });
        if (flags.json) return JSON.stringify(sample);
        const { state, worker, pid } = sample;
        const what = {
          running: 'is at',
          idle: 'is idle',
          silent: 'does not tell: it has just started, is in a long native call, or its process is stopped',
        }[state];
        const where = worker === actor ? '' : `, in ${worker}`;
        return `${actor}${where}${pid === undefined ? '' : ` (pid ${pid})`} ${what}${state === 'running' ? `\n${stackText(sample)}` : ''}`;
      });
    });
}
