// Process primitives: what is alive, what is provably dead, and death with the parent however busy the child is.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createConnection, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { os } from '../../kernels/os.ts';
import { until } from '../until.ts';

const fixture = new URL(`./fixtures/os-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);

// Plain node: the test runner's loader would cost every child a second.
const { NODE_OPTIONS: _, ...env } = process.env;

t.test('a busy child in a session of its own dies with its parent', { skip: process.platform !== 'linux' && 'reads /proc' }, async (t) => {
  const parent = fork(fixture, ['parent'], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], execArgv: [], env });
  const [message] = (await once(parent, 'message')) as [{ child: number; seen: { refused: string; startTime: string } }];
  const { child, seen } = message;
  t.equal(seen.refused, 'SINKFLEX_OS_PARENT_GONE', 'another parent than expected is told');
  t.equal(os.processStartTime(child), seen.startTime);
  const [group, session] = readFileSync(`/proc/${child}/stat`, 'utf8').split(') ')[1]!.split(' ').slice(2, 4).map(Number);
  t.same([group, session], [child, child], 'group and session are its own');
  t.equal(os.provenDead(child, seen.startTime), false);
  t.equal(os.provenDead(child, String(Number(seen.startTime) + 1)), true, 'that pid with another start time is another process');
  parent.kill('SIGKILL');
  await until('it follows', () => os.provenDead(child, seen.startTime));
});

t.test('states: stopped, zombie, gone', { skip: process.platform !== 'linux' && 'needs a shell that leaves zombies' }, async (t) => {
  // The shell forks a sleeper, becomes something that never waits, and so keeps the killed sleeper as a zombie.
  const shell = spawn('sh', ['-c', 'sleep 1000 & echo $!; exec sleep 1000'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(shell.stdout!, 'data')) as [Buffer];
  const pid = Number(line);
  const startTime = os.processStartTime(pid)!;
  process.kill(pid, 'SIGSTOP');
  await until('it is stopped', () => os.processState(pid) === 'T');
  t.equal(os.provenDead(pid, startTime), false, 'stopped is not dead');
  process.kill(pid, 'SIGKILL');
  await until('it is a zombie', () => os.processState(pid) === 'Z');
  t.equal(os.provenDead(pid, startTime), true, 'a zombie is');
  t.equal(process.kill(pid, 0), true, 'although a signal 0 still reaches it');
  const gone = once(shell, 'exit');
  shell.kill('SIGKILL');
  await gone;
  t.equal(os.processState(shell.pid!), undefined);
});

t.test('refusals', async (t) => {
  t.throws(() => os.processState(0), { code: 'SINKFLEX_BAD_ARGUMENT' });
  t.throws(() => os.peerCredentials(0xffff), { code: 'SINKFLEX_OS_FAILED' });
  const module = new URL('../../kernels/os.js', import.meta.url).href;
  const source = `
    import(${JSON.stringify(module)}).then(({ os }) => {
      try { os.dieWithParent(process.ppid); } catch (e) { require('node:worker_threads').parentPort.postMessage(e.code); }
    });`;
  const [code] = await once(new Worker(source, { eval: true, execArgv: [], env }), 'message');
  t.equal(code, 'SINKFLEX_BAD_ARGUMENT', 'a worker thread must not tie the process to its parent');
  t.ok(os.availableMemory() > 2 ** 20);
});

t.test('the peer of a UNIX socket is known', async (t) => {
  const path = join(t.testdir(), 's');
  const server = createServer();
  server.listen(path);
  await once(server, 'listening');
  const client = createConnection(path);
  const [socket] = (await once(server, 'connection')) as [Socket & { _handle: { fd: number } }];
  t.match(os.peerCredentials(socket._handle.fd), { pid: process.pid, uid: process.getuid!(), gid: process.getgid!() });
  client.destroy();
  socket.destroy();
  server.close();
});
