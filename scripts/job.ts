// `sinkflex job submit|logs|stop|list`: drivers on the host of a running head.
import { setTimeout as delay } from 'node:timers/promises';
import { Command } from 'commander';
import { init, type JobInfo, listJobs, readJobLog, shutdown, stopJob, submitJob } from '../runtime/index.ts';
import { defaultFolder } from './head.ts';
import { pair } from './option-values.ts';
import { table } from './text.ts';

const LOOK_MS = 200;
const ENDED: ReadonlySet<JobInfo['state']> = new Set(['succeeded', 'failed', 'stopped', 'lost']);

interface Flags {
  address: string;
  tokenFile?: string;
  tlsCa?: string;
  json?: boolean;
}

function withCluster(command: Command): Command {
  return command
    .option(
      '--address <address>',
      'folder of the head, or wss://host:port where it listens (or SINKFLEX_ADDRESS)',
      process.env.SINKFLEX_ADDRESS ?? defaultFolder(),
    )
    .option('--token-file <path>', 'token of a cluster on another host (or SINKFLEX_TOKEN_FILE, SINKFLEX_TOKEN)')
    .option('--tls-ca <file>', 'who may have signed the certificate of the head (or SINKFLEX_TLS_CA)')
    .option('--json', 'JSON instead of text');
}

/** As a driver of the cluster. */
async function inCluster<T>({ address, tokenFile, tlsCa }: Flags, work: () => Promise<T>): Promise<T> {
  await init({ address, ...(tokenFile === undefined ? {} : { tokenFile }), ...(tlsCa === undefined ? {} : { tlsCa }) });
  try {
    return await work();
  } finally {
    await shutdown();
  }
}

/** Writes the log as it grows, until the job has ended. */
async function follow(job: string): Promise<void> {
  for (let from = 0; ; ) {
    const { text, next, state } = await readJobLog(job, from);
    process.stdout.write(text);
    if (text.length === 0) {
      if (ENDED.has(state)) return;
      await delay(LOOK_MS);
    }
    from = next;
  }
}

async function find(job: string): Promise<JobInfo> {
  const { state } = await readJobLog(job); // SINKFLEX_UNKNOWN_JOB
  return (await listJobs()).find((each) => each.job === job) ?? { job, state, command: [], submittedAt: '' };
}

/** Its exit code becomes that of this command. */
function finish({ job, state, exitCode, signal, error }: JobInfo): void {
  process.stderr.write(`job ${job}: ${state}${error === undefined ? '' : `: ${error}`}${signal === undefined ? '' : ` (${signal})`}\n`);
  process.exitCode = exitCode ?? 1;
}

export function jobCommand(): Command {
  const jobs = new Command('job')
    .summary('run a program on the host of a head: submit, logs, stop, list')
    .description('Jobs are drivers on the host of the head. They outlive whoever submits them and the head, and end with the cluster.');
  jobs.addCommand(
    withCluster(new Command('submit'))
      .description('Starts a command, writes its output, and ends with its exit code. SINKFLEX_ADDRESS tells it of the cluster.')
      .argument('<command...>', 'program and its arguments, after --')
      .option('--job <name>', 'name of the job; default a new one')
      .option('--cwd <folder>', 'where it runs on that host; default where the head was started')
      .option('--env <name=value>', 'a variable of its environment (repeatable)', pair, {})
      .option('--no-wait', 'print its name, and leave it to itself')
      .action((command: string[], o: Flags & { job?: string; cwd?: string; env: Record<string, string>; wait: boolean }) =>
        inCluster(o, async () => {
          const { job, cwd, env } = o;
          const started = await submitJob(command, { env, ...(job === undefined ? {} : { job }), ...(cwd === undefined ? {} : { cwd }) });
          if (!o.wait) {
            process.stdout.write(o.json ? `${JSON.stringify(started)}\n` : `${started.job}\n`);
            return;
          }
          process.stderr.write(`job ${started.job}\n`);
          await follow(started.job);
          finish(await find(started.job));
        }),
      ),
  );
  jobs.addCommand(
    withCluster(new Command('logs'))
      .description('What a job has written so far.')
      .argument('<job>')
      .option('-f, --follow', 'go on until it ends, and end with its exit code')
      .action((job: string, o: Flags & { follow?: boolean }) =>
        inCluster(o, async () => {
          if (o.follow) {
            await follow(job);
            finish(await find(job));
            return;
          }
          for (let from = 0; ; ) {
            const { text, next } = await readJobLog(job, from);
            if (text.length === 0) return;
            process.stdout.write(text);
            from = next;
          }
        }),
      ),
  );
  jobs.addCommand(
    withCluster(new Command('stop'))
      .description('SIGTERM to a job and what it has started, and SIGKILL when it does not end.')
      .argument('<job>')
      .option('--timeout <ms>', 'until SIGKILL', Number, 10_000)
      .action((job: string, o: Flags & { timeout: number }) =>
        inCluster(o, async () => {
          const ended = await stopJob(job, { timeoutMs: o.timeout });
          process.stdout.write(o.json ? `${JSON.stringify(ended)}\n` : `job ${job}: ${ended.state}\n`);
        }),
      ),
  );
  jobs.addCommand(
    withCluster(new Command('list'))
      .description('All jobs of the cluster.')
      .action((o: Flags) =>
        inCluster(o, async () => {
          const all = await listJobs();
          const rows = all.map((each) => [
            each.job,
            each.state,
            String(each.exitCode ?? each.signal ?? ''),
            each.submittedAt,
            each.command.join(' '),
          ]);
          const text = all.length === 0 ? 'no jobs' : table([['job', 'state', 'exit', 'submitted', 'command'], ...rows], { header: true });
          process.stdout.write(`${o.json ? JSON.stringify(all) : text}\n`);
        }),
      ),
  );
  return jobs;
}
