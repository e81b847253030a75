// `sinkflex bench <suite>`: measures rows against rivals in the same run. `--json`: one object a line.
import { Command } from 'commander';
import { CommandError } from '../errors.ts';
import { controlSuite } from './control.ts';
import { engineSuite } from './engine.ts';
import { environmentSuite } from './environments.ts';
import { linksSuite } from './links.ts';
import { memorySuite } from './memory.ts';
import { pipelineSuite } from './pipeline.ts';
import { printRows, type Row, type Skip, type Suite } from './rows.ts';
import { runtimeSuite } from './runtime.ts';
import { sandboxSuite } from './sandbox.ts';
import { scaleSuite } from './scale.ts';
import { weightsSuite } from './weights.ts';

const SUITES: Readonly<Record<string, Suite>> = {
  control: controlSuite,
  env: environmentSuite,
  engine: engineSuite,
  links: linksSuite,
  memory: memorySuite,
  pipeline: pipelineSuite,
  runtime: runtimeSuite,
  sandbox: sandboxSuite,
  scale: scaleSuite,
  weights: weightsSuite,
};

/** Without a word from a row: no piece of one takes so long, with rivals and on a busy machine. */
const ROW_LIMIT_MS = 480_000;

interface BenchOptions {
  peers?: boolean;
  quick?: boolean;
  json?: boolean;
  rows?: string;
}

export function benchCommand(): Command {
  return new Command('bench')
    .summary('measure speed, beside rivals with --peers')
    .description(
      'Runs a suite of measurements. Every ratio is "how much better": above 1 is better. Rivals that are not installed are skipped and counted.',
    )
    .argument('<suite>', `one of: ${Object.keys(SUITES).join(', ')}`)
    .option('--peers', 'measure the rivals too (SINKFLEX_PEERS names their Python, SINKFLEX_SHARED their scripts)')
    .option('--rows <pattern>', 'only rows whose id contains this')
    .option('--quick', 'fewer repetitions: for a look, not for a figure')
    .option('--json', 'one JSON object a row')
    .action(async (name: string, o: BenchOptions) => {
      const suite = SUITES[name];
      if (!suite) throw new CommandError('SINKFLEX_USAGE', `there is no suite "${name}"; one of: ${Object.keys(SUITES).join(', ')}`);
      const chosen = Object.entries(suite).filter(([id]) => o.rows === undefined || id.includes(o.rows));
      if (chosen.length === 0)
        throw new CommandError('SINKFLEX_USAGE', `no row contains "${o.rows}"; rows: ${Object.keys(suite).join(', ')}`);
      await runRows(chosen, o);
    });
}

async function runRows(chosen: readonly [string, Suite[string]][], o: BenchOptions): Promise<void> {
  const rows: (Row | Skip)[] = [];
  const failed: string[] = [];
  const closers: (() => Promise<void>)[] = [];
  let stuck = false;
  try {
    for (const [id, measure] of chosen) {
      process.stderr.write(`${id} ...\n`);
      let heard = performance.now();
      const measuring = measure({
        peers: o.peers ?? false,
        quick: o.quick ?? false,
        note: (text) => {
          heard = performance.now();
          process.stderr.write(`  ${text}\n`);
        },
        report: (row) => {
          heard = performance.now();
          rows.push(row);
          if (o.json) process.stdout.write(`${JSON.stringify(row)}\n`);
        },
        atEnd: (close) => closers.push(close),
      });
      try {
        stuck = !(await within(ROW_LIMIT_MS, measuring, () => heard));
      } catch (error) {
        if (chosen.length === 1) throw error;
        failed.push(`${id}: ${(error as Error).message}`);
        process.stderr.write(`  FAILED: ${(error as Error).stack ?? error}\n`);
      }
      if (!stuck) continue;
      failed.push(`${id}: nothing came of it within ${ROW_LIMIT_MS / 60_000} minutes; rows after it were not measured`);
      break;
    }
  } finally {
    for (const close of closers.reverse()) await close();
  }
  if (!o.json) process.stdout.write(`${printRows(rows)}\n`);
  const skipped = rows.filter((r) => 'skipped' in r);
  if (skipped.length > 0) {
    process.stderr.write(
      `\nSKIPPED ${skipped.length} of ${rows.length} measurements:\n${skipped.map((s) => `  ${s.row}: ${(s as Skip).skipped}`).join('\n')}\n`,
    );
  }
  if (failed.length === 0) return;
  process.stderr.write(`\nFAILED ${failed.length} of ${chosen.length} rows:\n${failed.map((line) => `  ${line}`).join('\n')}\n`);
  process.exitCode = 1;
  // What hangs would keep the process.
  if (stuck) process.exit();
}

/** Whether it ended before it was silent for so long. */
async function within(ms: number, work: Promise<void>, heard: () => number): Promise<boolean> {
  let watch: NodeJS.Timeout | undefined;
  const limit = new Promise<boolean>((done) => {
    watch = setInterval(() => {
      if (performance.now() - heard() > ms) done(false);
    }, 1000);
  });
  try {
    return await Promise.race([work.then(() => true), limit]);
  } finally {
    clearInterval(watch);
  }
}
