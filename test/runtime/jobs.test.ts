// Jobs: drivers on the head's host, submitted from anywhere with the token; their output, exit codes and ends, also through the death of the head.
import { execFile, spawn as startProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import t from 'tap';
import { os } from '../../kernels/index.ts';
import { checkMessage } from '../../runtime/head/check-message.ts';
import { init, type JobInfo, listJobs, readJobLog, shutdown, stopJob, submitJob } from '../../runtime/index.ts';
import { until } from '../until.ts';
import { gone } from './fixtures/processes.ts';
import { endHostProcesses, type Started, startHostProcess } from './fixtures/processes-of-hosts.ts';

t.setTimeout(600_000);
delete process.env.NODE_OPTIONS;
const base = mkdtempSync(join(tmpdir(), 'sf-jobs-'));
const folder = join(base, 'cluster');
const tokenFile = join(folder, 'token');
let head: Started;
t.before(async () => {
  head = await startHostProcess('head', folder, '127.0.0.1:0');
  await startHostProcess('agent', folder, 'home');
  await init({ address: head.said.url as string, tokenFile });
});
t.teardown(async () => {
  await shutdown();
  endHostProcesses();
  rmSync(base, { recursive: true, force: true });
});

const node = (code: string): string[] => [process.execPath, '--input-type=module', '-e', code];

async function output(job: string): Promise<{ text: string; info: JobInfo }> {
  let text = '';
  for (let from = 0; ; ) {
    const piece = await readJobLog(job, from);
    text += Buffer.from(piece.text).toString();
    from = piece.next;
    if (piece.text.length === 0 && piece.state !== 'running' && piece.state !== 'starting')
      return { text, info: (await listJobs()).find((each) => each.job === job)! };
    if (piece.text.length === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

t.test('a job is a driver of the cluster, and its output and exit code are kept', async (t) => {
  const runtime = fileURLToPath(new URL('../../runtime/index.js', import.meta.url));
  const { job } = await submitJob(
    node(`import { init, listNodes, shutdown } from ${JSON.stringify(pathToFileURL(runtime).href)};
await init({ address: process.env.SINKFLEX_ADDRESS });
console.log((await listNodes()).map(({ node }) => node).join(), process.env.GIVEN, process.cwd());
await shutdown();`),
    { env: { GIVEN: 'so' }, cwd: base },
  );
  const { text, info } = await output(job);
  t.equal(text, `home so ${base}\n`);
  t.match(info, { job, state: 'succeeded', exitCode: 0 });

  const many = await submitJob(node('process.stderr.write("x".repeat(700000) + "end"); process.exitCode = 3'), { job: 'large' });
  t.equal(many.job, 'large');
  const large = await output('large');
  t.equal(large.text, `${'x'.repeat(700_000)}end`, 'in pieces, none twice');
  t.match(large.info, { state: 'failed', exitCode: 3 });
  t.match((await output((await submitJob(['/nowhere/at-all'])).job)).info, { state: 'failed', error: /ENOENT/ });
  t.equal((await listJobs())[0]!.job, job, 'the oldest first');
});

t.test('a stop reaches what a job has started; what does not listen is killed', async (t) => {
  const { job } = await submitJob(
    node(`import { spawn } from 'node:child_process';
const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
console.log(child.pid);
setInterval(() => {}, 1000);`),
  );
  await until('its child', async () => (await readJobLog(job)).next > 0);
  const child = Number(Buffer.from((await readJobLog(job)).text).toString());
  t.match(await stopJob(job), { state: 'stopped', signal: 'SIGTERM' });
  await until('its end', () => os.processState(child) === undefined || os.processState(child) === 'Z');
  t.match(await stopJob(job), { state: 'stopped', signal: 'SIGTERM' }, 'again changes nothing');

  const deaf = await submitJob(node('process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 1000)'));
  await until('it is up', async () => (await readJobLog(deaf.job)).next > 0);
  t.match(await stopJob(deaf.job, { timeoutMs: 200 }), { state: 'stopped', signal: 'SIGKILL' });
});

t.test('what cannot be is refused', async (t) => {
  await t.rejects(submitJob(['true'], { job: 'large' }), { code: 'SINKFLEX_NAME_TAKEN' });
  await t.rejects(submitJob(['true'], { job: '../escape' }), { code: 'SINKFLEX_BAD_OPTION' });
  await t.rejects(submitJob(['true'], { cwd: '/nowhere' }), { code: 'SINKFLEX_BAD_OPTION', message: /no folder/ });
  await t.rejects(submitJob([]), { code: 'SINKFLEX_BAD_OPTION' });
  for (const act of [() => stopJob('unknown'), () => readJobLog('unknown'), () => stopJob('..')])
    await t.rejects(async () => act(), { code: 'SINKFLEX_UNKNOWN_JOB' });
  const ask = (ask: unknown) => () => checkMessage({ t: 'ask', worker: 1, request: 1, ask });
  t.doesNotThrow(ask({ q: 'job-submit', request: { command: ['a'] } }));
  for (const bad of [
    { q: 'job-submit' },
    { q: 'job-submit', request: { command: 'a' } },
    { q: 'job-submit', request: { command: ['a'], env: { A: 1 } } },
    { q: 'job-log', job: 'x', from: -1 },
    { q: 'job-stop', job: 1 },
  ])
    t.throws(ask(bad), { code: 'SINKFLEX_PROTOCOL' });
});

t.test('a job outlives the head, which knows it again; the command line ends with its exit code', async (t) => {
  const ready = join(base, 'go');
  const { job } = await submitJob(
    node(
      `import { existsSync } from 'node:fs'; console.log('before'); setInterval(() => existsSync(${JSON.stringify(ready)}) && (console.log('after'), process.exit(7)), 20)`,
    ),
  );
  await until('it runs', async () => (await readJobLog(job)).next > 0);
  head.child.kill('SIGKILL');
  head = await startHostProcess('head', folder, new URL(head.said.url as string).host);
  writeFileSync(ready, '');
  const { text, info } = await output(job);
  t.equal(text, 'before\nafter\n');
  t.match(info, { state: 'failed', exitCode: 7 });

  const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
  // Not synchronously: a driver that is blocked for the time of its lease is given up.
  const sinkflex = (...words: string[]) =>
    new Promise<{ status: unknown; stdout: string }>((resolve) =>
      execFile(process.execPath, [entry, 'job', ...words], (error, stdout) => resolve({ status: error === null ? 0 : error.code, stdout })),
    );
  const submitted = await sinkflex('submit', '--address', folder, '--', process.execPath, '-e', 'console.log("said"); process.exit(5)');
  t.match(submitted, { status: 5, stdout: 'said\n' });
  const waiting = await sinkflex('submit', '--address', folder, '--job', 'sleeper', '--no-wait', '--', 'sleep', '600');
  t.match(waiting, { status: 0, stdout: 'sleeper\n' });
  t.match((await sinkflex('list', '--address', folder)).stdout, /sleeper +(starting|running)[\s\S]*sleep 600/);
  t.match(await sinkflex('logs', '--address', folder, job), { status: 0, stdout: 'before\nafter\n' });
  t.match((await sinkflex('stop', '--address', folder, 'sleeper')).stdout, /sleeper: stopped/);

  await shutdown();
});

t.test('a job whose watcher was killed goes on, and can be stopped', async (t) => {
  await init({ address: folder });
  const { job } = await submitJob(['sleep', '600']);
  const info = async () => (await listJobs()).find((each) => each.job === job)!;
  await until('it runs', async () => (await info()).pid !== undefined);
  const { watcher } = JSON.parse(readFileSync(join(folder, 'jobs', job, 'job.json'), 'utf8')) as { watcher: { pid: number } };
  process.kill(watcher.pid, 'SIGKILL');
  t.same(await gone([watcher.pid]), []);
  const { state, pid } = await info();
  t.equal(state, 'running');
  t.match(await stopJob(job), { state: 'stopped' });
  t.same(await gone([pid!]), []);
  await shutdown();
});

t.test('jobs end with their cluster', async (t) => {
  const other = join(base, 'other');
  const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
  const cluster = startProcess(process.execPath, [entry, 'head', '--folder', other, '--attended'], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(cluster.stdout, 'data');
  await init({ address: other });
  const { job } = await submitJob(['sleep', '600']);
  await until('it runs', async () => (await listJobs())[0]?.state === 'running');
  const { pid } = (await listJobs()).find((each) => each.job === job)!;
  await shutdown();
  cluster.stdin.end();
  await once(cluster, 'exit');
  t.same(await gone([pid!]), []);
  t.notOk(existsSync(other));
});
