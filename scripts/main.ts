// The command line: finds the subcommand, and turns every error into one message and an exit code.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { agentCommand } from './agent.ts';
import { archiveCommand } from './archive.ts';
import { benchCommand } from './bench/index.ts';
import { certsCommand } from './certs.ts';
import { compareCommand } from './compare.ts';
import { dataCommand } from './data.ts';
import { doctorCommand } from './doctor.ts';
import { envCommand } from './env.ts';
import { explain } from './errors.ts';
import { evaluateCommand } from './evaluate.ts';
import { generateCommand } from './generate.ts';
import { headCommand } from './head.ts';
import { jobCommand } from './job.ts';
import { launchCommand } from './launch.ts';
import { listCommand, summaryCommand } from './observe/lists.ts';
import { logsCommand } from './observe/logs.ts';
import { stackCommand } from './observe/stack.ts';
import { metricsCommand, statusCommand } from './observe/status.ts';
import { timelineCommand } from './observe/timeline.ts';
import { packageRoot } from './package-root.ts';
import { reportCommand } from './run-report/command.ts';
import { serveCommand } from './serve.ts';
import { sftCommand } from './sft.ts';
import { studyCommand } from './study.ts';

/** Runs the words of a command line (without node and script); the exit code. */
export async function main(words: readonly string[]): Promise<number> {
  const debug = words.includes('--debug') || process.env.SINKFLEX_DEBUG === '1';
  try {
    await program().parseAsync(words, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // commander has already printed its message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const { text, exitCode } = explain(error, debug);
    process.stderr.write(`sinkflex: ${text}\n`);
    // A signal has set its own exit code (130, 143).
    return Number(process.exitCode ?? 0) > 2 ? Number(process.exitCode) : exitCode;
  }
}

function program(): Command {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };
  const all = new Command('sinkflex')
    .description('Trains long-horizon tool-use agents by reinforcement learning.')
    .version(version)
    .option('--debug', 'show where an error happened')
    .showHelpAfterError('(sinkflex <command> --help explains a command)')
    .exitOverride();
  const running = [headCommand(), agentCommand(), jobCommand(), certsCommand()];
  const observing = [statusCommand(), listCommand(), summaryCommand(), logsCommand(), timelineCommand(), stackCommand(), metricsCommand()];
  const models = [launchCommand(), evaluateCommand(), compareCommand(), reportCommand(), generateCommand(), serveCommand(), sftCommand()];
  for (const command of [
    ...models,
    studyCommand(),
    benchCommand(),
    ...observing,
    ...running,
    envCommand(),
    dataCommand(),
    archiveCommand(),
    doctorCommand(),
  ]) {
    // A flag of the whole program may stand after the subcommand too.
    command.option('--debug', 'show where an error happened').exitOverride();
    command.showHelpAfterError(`(sinkflex ${command.name()} --help explains it)`);
    all.addCommand(command);
  }
  return all;
}
