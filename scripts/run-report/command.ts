// `sinkflex report`: draws a run as one HTML file.
import { resolve } from 'node:path';
import { Command } from 'commander';
import { atomicWrite, RunFolder } from '../../actors/index.ts';
import { collectReport } from './collect.ts';
import { reportPage } from './page.ts';

export function reportCommand(): Command {
  return new Command('report')
    .summary('draw a run as one HTML file: curves, distributions, episodes token by token')
    .description(
      'Reads the folder of a run, finished or not, and writes report.html into it: one file that opens from disk, without a network.',
    )
    .argument('<run>', 'a run folder')
    .option('-o, --output <file>', 'where to write it; report.html in the run folder unless given')
    .addHelpText('after', '\nExample\n  sinkflex report runs/20260131T090503Z-desk\n')
    .action(async (run: string, o: { output?: string }) => {
      process.stdout.write(`${await writeReport(run, o.output)}\n`);
    });
}

/** Writes the report of a run; the path of the file. */
export async function writeReport(run: string, output?: string): Promise<string> {
  const page = reportPage(await collectReport(run));
  const path = output === undefined ? RunFolder.open(run).file('report.html') : resolve(output);
  atomicWrite(path, page);
  return path;
}
