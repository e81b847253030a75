// The commands that look at a run, as a user meets them: a driver in a process of its own, and each command attaching to it.
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { main } from '../../scripts/main.ts';
import { age, bytes } from '../../scripts/text.ts';

const program = fileURLToPath(new URL('./observed-run.js', import.meta.url));
const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));

interface Driver {
  process: ChildProcess;
  pid: string;
  pids: Record<string, number>;
  tell(word: string): Promise<void>;
}

async function start(): Promise<Driver> {
  const env = { ...process.env, NODE_OPTIONS: '' };
  const child = fork(program, { env, execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  const [{ pids }] = (await once(child, 'message')) as [{ pids: Record<string, number> }];
  return {
    process: child,
    pid: String(child.pid),
    pids,
    async tell(word) {
      child.send(word);
      await once(child, 'message');
    },
  };
}

let driver: Driver;
t.before(async () => {
  driver = await start();
});
t.teardown(() => driver.process.kill('SIGKILL'));

/** In this process: as fast as a function call. */
async function sinkflex(t: Test, ...words: string[]) {
  const [out, errors] = [t.capture(process.stdout, 'write'), t.capture(process.stderr, 'write')];
  try {
    const code = await main(words);
    return { code, out: text(out()), errors: text(errors()) };
  } finally {
    out.restore();
    errors.restore();
    process.exitCode = undefined;
  }
}
const text = (calls: readonly { args: readonly unknown[] }[]): string => calls.map((c) => String(c.args[0])).join('');
const on = (...words: string[]): string[] => [...words, '--run', driver.pid];

async function json(t: Test, ...words: string[]): Promise<Record<string, unknown>> {
  const { code, out, errors } = await sinkflex(t, ...on(...words, '--json'));
  t.equal(code, 0, errors);
  t.equal(out.trim().split('\n').length, 1, 'one document');
  return JSON.parse(out) as Record<string, unknown>;
}

t.test('status shows a run at a glance', async (t) => {
  const { code, out } = await sinkflex(t, ...on('status'));
  t.equal(code, 0);
  t.match(out, new RegExp(`^program +.*observed-run.js \\(pid ${driver.pid}, Node v`, 'm'));
  t.match(out, /^actors +4 alive$/m);
  t.match(out, /^workers +1 driver, 2 process, 1 shared, 1 thread$/m);
  t.match(out, /^calls +1 running, 150 queued; 151 unanswered \(\d.* KiB\)$/m);
  t.match(out, /last events[\s\S]*actor +\w+ +alive/);
  t.match(await json(t, 'status'), {
    pid: Number(driver.pid),
    actors: { alive: 4 },
    calls: { running: 1, queued: 150 },
    memory: { rss: Number },
    silent: [],
    nodes: Array,
  });
});

t.test('lists are aligned tables that say what they leave out; their JSON leaves nothing out', async (t) => {
  const tasks = await sinkflex(t, ...on('list', 'tasks', '--limit', '10'));
  const rows = tasks.out.trimEnd().split('\n');
  t.equal(rows.length, 2 + 10 + 1);
  t.equal(rows.at(-1), '10 of 151 tasks (--limit all shows them all)');
  t.match(rows[2], /^gate +block\(\) +running +driver +.*(ms|s) +/);
  const end = rows[0]!.indexOf('age') + 3;
  for (const row of rows.slice(2, 12)) t.match(row.slice(0, end), /(ms|s)$/, 'ages end in one column');
  t.equal((await sinkflex(t, ...on('list', 'tasks'))).out.trimEnd().split('\n').at(-1), '100 of 151 tasks (--limit all shows them all)');
  t.equal((await sinkflex(t, ...on('list', 'tasks', '--limit', 'all'))).out.trimEnd().split('\n').at(-1), '151 tasks');
  t.match(await json(t, 'list', 'tasks'), { total: 151, items: { length: 151 } });
  t.match(await json(t, 'list', 'tasks', '--limit', '3', '--where', 'state=queued', '--where', 'method=echo'), {
    total: 150,
    items: { length: 3 },
  });
  t.match(await json(t, 'list', 'tasks', '--where', 'state!=queued'), {
    total: 1,
    items: [{ method: 'block', state: 'running', actor: 'gate' }],
  });
  t.match(await json(t, 'list', 'actors', '--where', 'name=light'), {
    items: [{ kind: 'Counter', isolation: 'shared', state: 'alive', running: 0 }],
  });
  for (const what of ['actors', 'objects', 'workers', 'nodes', 'groups', 'events']) {
    const table = await sinkflex(t, ...on('list', what));
    t.equal(table.code, 0, table.errors);
    t.match(table.out, new RegExp(`^\\d+ ${what.slice(0, -1)}s?$`, 'm'));
    t.notMatch(table.out, '\x1b[', 'no colours but on a terminal');
    const answer = await json(t, 'list', what);
    t.equal((answer.items as unknown[]).length, answer.total);
    t.same(answer.silent, []);
  }
  t.match(await json(t, 'summary', '--where', 'kind=Counter'), { items: [{ kind: 'Counter', method: 'add', started: 2, failed: 0 }] });
  t.match((await sinkflex(t, ...on('summary'))).out, /^Probe +echo\(\) +0 +0 +0 +150 /m);
  const metrics = await sinkflex(t, ...on('metrics'));
  t.match(metrics.out, /^sinkflex_calls_queued\{kind="Probe"\} 150$/m);
  t.match(await json(t, 'metrics'), { text: String });
});

t.test('logs: the last lines, all as JSON, and new ones as they come', async (t) => {
  t.match((await sinkflex(t, ...on('logs'))).out, /^name +pid +size[\s\S]*^talker +\d+ +\d+ B/m);
  t.match((await sinkflex(t, ...on('logs', 'talker'))).out, /^\S+Z stderr spinning\n$/);
  t.match(await json(t, 'logs', 'talker', '--tail', '1'), { stream: 'stderr', line: 'spinning' });
  const follower = spawn(process.execPath, [entry, ...on('logs', 'talker', '-f')], { stdio: ['ignore', 'pipe', 'pipe'] });
  let seen = '';
  follower.stdout.setEncoding('utf8');
  let onData = (): void => {};
  follower.stdout.on('data', (chunk) => {
    seen += chunk;
    onData();
  });
  const lines = async (count: number): Promise<void> => {
    while (seen.split('\n').length - 1 < count) await new Promise<void>((resolve) => (onData = resolve));
  };
  await lines(1);
  await driver.tell('talk');
  await lines(4);
  t.match(seen, /^(\S+Z stderr spinning\n){4}$/);
  follower.kill();
  await once(follower, 'exit');
  const short = await sinkflex(t, ...on('logs', 'talker', '--tail', '2'));
  t.match(short.errors, /the last 2 of 4 lines/);
  const quiet = await sinkflex(t, ...on('logs', 'gate'));
  t.same([quiet.code, quiet.out], [0, '']);
});

t.test('what the user can put right', async (t) => {
  const cases: [string[], RegExp][] = [
    [on('list', 'everything'), /no list of "everything"; one of: actors, tasks/],
    [on('list', 'actors', '--limit', 'many'), /--limit "many": must be a whole number/],
    [on('list', 'actors', '--where', 'alive'), /must be field=value/],
    [on('logs', 'nobody'), /SINKFLEX_NO_LOG.*there are logs of talker/],
    [['status', '--run', '1'], new RegExp(`SINKFLEX_NO_RUN: process 1 drives no run of yours; did you mean --run[\\s\\S]* ${driver.pid} `)],
    [['status', '--run', '/nowhere'], /\/nowhere does not exist/],
  ];
  for (const [words, message] of cases) {
    const { code, out, errors } = await sinkflex(t, ...words);
    t.same([code, out], [2, ''], words.join(' '));
    t.match(errors, message);
  }
  const several = await start();
  try {
    const { code, errors } = await sinkflex(t, 'status');
    t.equal(code, 2);
    t.match(errors, /\d+ runs of yours are alive; choose one with --run <pid>/);
    t.ok(errors.includes(driver.pid) && errors.includes(several.pid));
  } finally {
    several.process.send('end');
    await once(several.process, 'exit');
  }
});

t.test('a blocked worker shows as such, and so does a driver that is stopped; neither hangs the command', async (t) => {
  await driver.tell('block');
  const before = performance.now();
  const workers = await json(t, 'list', 'workers', '--timeout', '200');
  const silent = (workers.silent as { name: string }[]).find(({ name }) => name === 'talker');
  t.match(silent, { why: 'blocked', pid: driver.pids.talker });
  const tasks = await sinkflex(t, ...on('list', 'tasks', '--timeout', '200', '--where', 'actor=talker'));
  t.match(tasks.out, /^talker +spin\(\) +unanswered +driver/m);
  t.match(tasks.out, new RegExp(`no answer from talker \\(pid ${driver.pids.talker}\\): its event loop is blocked`));
  t.match((await sinkflex(t, ...on('status', '--timeout', '200'))).out, /no answer from talker/);
  const stack = await sinkflex(t, ...on('stack', 'talker'));
  t.match(stack.out, new RegExp(`^talker \\(pid ${driver.pids.talker}\\) is at\\n.*spin.*actors\\.`));
  t.match(await json(t, 'stack', 'gate'), { state: 'idle', worker: 'gate', pid: driver.pids.gate });
  process.kill(Number(driver.pid), 'SIGSTOP');
  const stopped = await sinkflex(t, ...on('status', '--timeout', '200'));
  process.kill(Number(driver.pid), 'SIGCONT');
  t.equal(stopped.code, 1);
  t.match(
    stopped.errors,
    new RegExp(`SINKFLEX_NO_ANSWER: the run of process ${driver.pid} did not answer in time: the process is stopped`),
  );
  t.ok(performance.now() - before < 20_000);
});

t.test('--watch and --follow end with the run', async (t) => {
  const watching = sinkflex(t, ...on('status', '--watch', '0.1', '--timeout', '50'));
  driver.process.send('end');
  const { code, out, errors } = await watching;
  t.equal(code, errors.includes('the run has ended') ? 0 : 1, errors);
  t.match(out, /^actors /m);
  const { code: gone } = await sinkflex(t, ...on('status'));
  t.equal(gone, 2);
});

t.test('amounts for people', (t) => {
  t.same([0, 9.96, 123.4, 4200, 65_000, 3_600_000, 11_220_000, 187_200_000].map(age), [
    '0 ms',
    '10 ms',
    '123 ms',
    '4.2 s',
    '1 min 05 s',
    '1 h 00 min',
    '3 h 07 min',
    '2 d 04 h',
  ]);
  t.same([0, 999, 1000, 1536, 104_857_600, 3 * 2 ** 30].map(bytes), ['0 B', '999 B', '1.0 KiB', '1.5 KiB', '100 MiB', '3.0 GiB']);
  t.end();
});
