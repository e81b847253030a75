// `sinkflex archive save|list|restore`: runs to and from an S3-compatible store.
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { type ArchiveCount, archivedRuns, archivePlace, RunFolder, restoreRun, saveRun } from '../actors/index.ts';
import { stopSignal } from './stop-signal.ts';

export function archiveCommand(): Command {
  return new Command('archive')
    .summary('copy runs to an S3-compatible store, and back')
    .description(
      'Copies runs to an S3-compatible store, and back. Both ways go on where they were when they are repeated.\n' +
        'Credentials, region and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL.',
    )
    .addCommand(
      new Command('save')
        .description('copies a run folder, of a finished run or one under way')
        .argument('<run>', 'a run folder')
        .argument('<url>', 's3://bucket/prefix; the run is put below it under the name of its folder')
        .action((run: string, url: string) =>
          stoppable(async (signal) => counted(url, await saveRun(RunFolder.open(run), url, { signal }))),
        ),
    )
    .addCommand(
      new Command('list')
        .description('lists the runs that were copied')
        .argument('<url>', 's3://bucket/prefix')
        .action((url: string) =>
          stoppable(async (signal) => (await archivedRuns(url, { signal })).map((name) => `${url.replace(/\/+$/, '')}/${name}\n`).join('')),
        ),
    )
    .addCommand(
      new Command('restore')
        .description('fetches a run, which --resume then goes on with')
        .argument('<url>', 's3://bucket/prefix/run')
        .option('-o, --output <folder>', 'run folder (new or empty); otherwise runs/<run>')
        .action((url: string, o: { output?: string }) =>
          stoppable(async (signal) => {
            const folder = resolve(o.output ?? join('runs', archivePlace(url).prefix.split('/').at(-1)!));
            return `${counted(folder, await restoreRun(url, folder, { signal }))}go on: sinkflex launch --resume ${folder}\n`;
          }),
        ),
    );
}

/** Ctrl-C ends it; what `work` answers is printed. */
async function stoppable(work: (signal: AbortSignal) => Promise<string>): Promise<void> {
  const stop = stopSignal();
  try {
    process.stdout.write(await work(stop.signal));
  } finally {
    stop.dispose();
  }
}

const counted = (where: string, { copied, kept }: ArchiveCount): string => `${where}: ${copied} files copied, ${kept} were there already\n`;
