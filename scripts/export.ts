// `sinkflex data export`: the stored trajectories of a run as JSON lines or Parquet.
import { resolve } from 'node:path';
import { Command, Option } from 'commander';
import { type ExportFormat, exportFormats, exportTrajectories, RunFolder, type TrajectoryFilter } from '../actors/index.ts';
import { CommandError } from './errors.ts';

interface ExportOptions {
  format: ExportFormat;
  output?: string;
  phase?: 'train' | 'validation';
  steps?: readonly [number, number];
  task?: number;
  group?: string;
  policyVersion?: number;
}

export function exportCommand(): Command {
  return new Command('export')
    .description('Writes the trajectories that a run recorded, finished or not, into one file; what a file holds: docs/trajectories.md.')
    .argument('<run>', 'a run folder')
    .addOption(new Option('-f, --format <format>', 'jsonl is exact, parquet is for analysis').choices([...exportFormats]).default('jsonl'))
    .option('-o, --output <file>', 'where to write it; trajectories/export.<format> in the run folder unless given')
    .addOption(new Option('--phase <phase>', 'of these alone').choices(['train', 'validation']))
    .option('--steps <from..to>', 'of these steps alone, both included', range)
    .option('--task <index>', 'of this task alone', whole)
    .option('--group <name>', 'of this group alone')
    .option('--policy-version <n>', 'with tokens of this version of the policy', whole)
    .addHelpText('after', '\nExample\n  sinkflex data export runs/20260131T090503Z-desk --format parquet --steps 10..20\n')
    .action(exportRun);
}

async function exportRun(run: string, o: ExportOptions): Promise<void> {
  const folder = RunFolder.open(run);
  const store = await folder.readTrajectories();
  if (!store) throw new CommandError('SINKFLEX_DATA_ABSENT', `${folder.path} has recorded no trajectories`);
  const filter: TrajectoryFilter = {
    ...(o.phase === undefined ? {} : { phase: o.phase }),
    ...(o.steps === undefined ? {} : { steps: o.steps }),
    ...(o.task === undefined ? {} : { task: o.task }),
    ...(o.group === undefined ? {} : { group: o.group }),
    ...(o.policyVersion === undefined ? {} : { version: o.policyVersion }),
  };
  const path = o.output === undefined ? folder.file('trajectories', `export.${o.format}`) : resolve(o.output);
  try {
    const count = await exportTrajectories(store.read(filter), path, o.format);
    process.stdout.write(`${path}: ${count} trajectories\n`);
  } finally {
    await store.close();
  }
}

function whole(text: string): number {
  if (!/^\d+$/.test(text)) throw new CommandError('SINKFLEX_USAGE', `${text} is no whole number`);
  return Number(text);
}

function range(text: string): [number, number] {
  const found = /^(\d+)(?:\.\.(\d+))?$/.exec(text);
  if (!found) throw new CommandError('SINKFLEX_USAGE', `--steps ${text}: write a step such as 12, or steps such as 10..20`);
  return [Number(found[1]), Number(found[2] ?? found[1])];
}
