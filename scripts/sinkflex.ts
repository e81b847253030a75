#!/usr/bin/env node
// The `sinkflex` command: finds the subcommand, and turns every error into one message and an exit code.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { benchCommand } from './bench/index.ts';
import { doctorCommand } from './doctor.ts';
import { explain } from './errors.ts';
import { evaluateCommand } from './evaluate.ts';
import { launchCommand } from './launch.ts';
import { packageRoot } from './presets.ts';
import { studyCommand } from './study.ts';

const debug = process.argv.includes('--debug') || process.env.SINKFLEX_DEBUG === '1';
const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };

const program = new Command('sinkflex')
  .description('Trains long-horizon tool-use agents by reinforcement learning.')
  .version(version)
  .option('--debug', 'show where an error happened')
  .configureHelp({ showGlobalOptions: true })
  .showHelpAfterError('(sinkflex <command> --help explains a command)')
  .exitOverride();
for (const command of [launchCommand(), evaluateCommand(), studyCommand(), benchCommand(), doctorCommand()]) {
  // A flag of the whole program may stand after the subcommand too.
  command.option('--debug', 'show where an error happened').exitOverride();
  command.showHelpAfterError(`(sinkflex ${command.name()} --help explains it)`);
  program.addCommand(command);
}

try {
  await program.parseAsync();
} catch (error) {
  // commander has already printed its message.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
  else {
    const { text, exitCode } = explain(error, debug);
    process.stderr.write(`sinkflex: ${text}\n`);
    process.exitCode = process.exitCode && Number(process.exitCode) > 2 ? process.exitCode : exitCode;
  }
}
// Nothing may keep a finished command alive.
setTimeout(() => process.exit(), 500).unref();
