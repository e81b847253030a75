// `sinkflex data tau2`: fetches a benchmark's data from its own repository, at one commit, and checks every file.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import { CommandError } from './errors.ts';
import { exportCommand } from './export.ts';
import { TAU2_COMMIT, TAU2_FILES, TAU2_SOURCE } from './tau2-files.ts';

interface DataOptions {
  to: string;
  from: string;
}

/** No file is larger than 15 MB. */
const TIME_LIMIT_MS = 120_000;

export function dataCommand(): Command {
  return new Command('data')
    .summary('fetch the data of a benchmark, export the trajectories of a run')
    .description('Fetches benchmarks from their own repositories, at one commit, every file checked; exports what runs recorded.')
    .addCommand(exportCommand())
    .addCommand(
      new Command('tau2')
        .description(`tau2-bench (MIT, Sierra Research) at ${TAU2_COMMIT.slice(0, 8)}: databases, tasks, splits, policies; about 25 MB.`)
        .option('--to <folder>', 'where to put it; environments look there by themselves', 'data/tau2')
        .option('--from <url>', 'another place that has the same files', TAU2_SOURCE)
        .action(fetchTau2),
    );
}

async function fetchTau2(o: DataOptions): Promise<void> {
  const folder = resolve(o.to);
  let fetched = 0;
  for (const [path, digest] of Object.entries(TAU2_FILES)) {
    const target = join(folder, path);
    if (existsSync(target) && sha256(readFileSync(target)) === digest) continue;
    const bytes = await get(`${o.from}/${path}`);
    if (sha256(bytes) !== digest) {
      throw new CommandError(
        'SINKFLEX_DATA_CHECKSUM',
        `${o.from}/${path} is not what it should be (sha256 ${sha256(bytes)}, expected ${digest})`,
      );
    }
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(`${target}.part`, bytes);
    renameSync(`${target}.part`, target);
    fetched++;
    process.stderr.write(`${path}\n`);
  }
  const domains = join(folder, 'domains');
  process.stdout.write(`tau2-bench is in ${folder} (${fetched} of ${Object.keys(TAU2_FILES).length} files fetched)\n`);
  if (o.to !== 'data/tau2') process.stdout.write(`use it with TAU2_DATA=${domains} or the option data=${domains}\n`);
}

async function get(url: string): Promise<Buffer> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(TIME_LIMIT_MS) });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return Buffer.from(await answer.arrayBuffer());
  } catch (cause) {
    throw new CommandError('SINKFLEX_DATA_UNREACHABLE', `cannot fetch ${url}: ${(cause as Error).message}`);
  }
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
