// Sandboxes as their owner sees them: what is kept, what is lost, and what is left when the owner is killed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { ControlGroups, makeSandboxProvider, type SandboxProvider, Slots, seccompProgram } from '../../actors/sandbox/index.ts';
import { findProgram } from '../../actors/sandbox/launch.ts';
import { until } from '../until.ts';
import { whyNoSandbox } from './support.ts';

const reason = (await whyNoSandbox()) ?? false;
const owner = fileURLToPath(new URL('./owner.js', import.meta.url));

/** Control groups of the sandboxes of that process. */
function groupsOf(pid: number): string[] {
  const found: string[] = [];
  for (const line of readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n')) {
    const [, names, path] = /^\d+:([^:]*):(.*)$/.exec(line)!;
    const folder = join('/sys/fs/cgroup', names === '' ? 'unified' : names!, path!);
    if (existsSync(folder))
      found.push(
        ...readdirSync(folder)
          .filter((n) => n.startsWith(`sinkflex-sandbox-${pid}-`))
          .map((n) => join(folder, n)),
      );
  }
  return found;
}
/** Nothing where the file went between being listed and being read. */
function contentOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ENODEV'].includes((error as NodeJS.ErrnoException).code!)) return '';
    throw error;
  }
}
const processesOf = (pid: number): string[] =>
  groupsOf(pid).flatMap((g) => contentOf(join(g, 'cgroup.procs')).trim().split('\n').filter(Boolean));
const slotsOf = (pid: number): string[] =>
  readdirSync(new Slots().folder).filter(
    (name) => name.startsWith('slot-') && contentOf(join(new Slots().folder, name)).includes(`"pid":${pid},`),
  );

t.test('a program that is not there is named with its package', async (t) => {
  t.throws(() => findProgram('bwrap', mkdtempSync(join(tmpdir(), 'none-'))), {
    code: 'SINKFLEX_SANDBOX_MISSING',
    message: /apt-get install bubblewrap/,
  });
  t.throws(() => findProgram('runsc', '/nowhere'), { code: 'SINKFLEX_SANDBOX_MISSING', message: /apt-get install runsc/ });
});

t.test('options: what is wrong is named', async (t) => {
  t.throws(() => makeSandboxProvider('locl'), { code: 'SINKFLEX_SANDBOX_OPTION', message: /did you mean "local"/ });
  t.throws(() => makeSandboxProvider('local', { waive: ['memry'] }), { code: 'SINKFLEX_SANDBOX_OPTION', message: /did you mean "memory"/ });
});

t.test('the filter: one program for each architecture, none for others', async (t) => {
  for (const arch of ['x64', 'arm64'] as const) {
    const program = seccompProgram(arch)!;
    t.equal(program.length % 8, 0);
    const at = (i: number) => ({
      code: program.readUInt16LE(i * 8),
      yes: program[i * 8 + 2]!,
      no: program[i * 8 + 3]!,
      k: program.readUInt32LE(i * 8 + 4),
    });
    /** The kernel's answer to a call. */
    const run = (nr: number, args: number[] = [], audit = arch === 'x64' ? 0xc000003e : 0xc00000b7): number => {
      const data = (offset: number) => (offset === 0 ? nr : offset === 4 ? audit : (args[(offset - 16) / 8] ?? 0)) >>> 0;
      let a = 0;
      for (let pc = 0; ; pc++) {
        const { code, yes, no, k } = at(pc);
        if (code === 0x06) return k;
        if (code === 0x20) a = data(k);
        else {
          const holds = code === 0x15 ? a === k : code === 0x25 ? a > k : code === 0x35 ? a >= k : (a & k) !== 0;
          pc += holds ? yes : no;
        }
      }
    };
    const nr =
      arch === 'x64'
        ? { socket: 41, socketpair: 53, clone: 56, ptrace: 101, read: 0, ioctl: 16, priority: 141, prlimit: 302, affinity: 203 }
        : { socket: 198, socketpair: 199, clone: 220, ptrace: 117, read: 63, ioctl: 29, priority: 140, prlimit: 261, affinity: 122 };
    const [allow, eperm, enosys, family] = [0x7fff0000, 0x50001, 0x50026, 0x50061];
    t.same(
      [1, 2, 10, 40, 16, 17].map((f) => run(nr.socket, [f])),
      [allow, allow, allow, family, family, family],
      `${arch}: socket`,
    );
    t.same(
      [1, 2].map((f) => run(nr.socketpair, [f])),
      [allow, family],
      `${arch}: socketpair`,
    );
    t.same(
      [0x11, 0x1200011, 0x10000011, 0x40000011, 0x20011].map((f) => run(nr.clone, [f])),
      [allow, allow, eperm, eperm, eperm],
      `${arch}: clone`,
    );
    t.same(
      [run(nr.ptrace), run(nr.read), run(435), run(425), run(451), run(9999)],
      [eperm, allow, enosys, enosys, enosys, enosys],
      `${arch}: others`,
    );
    t.same(
      [0x5412, 0x541c, 0x5401].map((r) => run(nr.ioctl, [0, r])),
      [eperm, eperm, allow],
      `${arch}: ioctl`,
    );
    t.same(
      [
        [0, 0],
        [0, 1],
        [1, 0],
        [2, 0],
      ].map((args) => run(nr.priority, args)),
      [allow, eperm, eperm, eperm],
      `${arch}: setpriority for oneself alone`,
    );
    t.same(
      [nr.prlimit, nr.affinity].flatMap((call) => [run(call, [0]), run(call, [1])]),
      [allow, eperm, allow, eperm],
      `${arch}: limits and places of oneself alone`,
    );
    t.equal(run(nr.read, [], 0x40000003), 0x80000000, `${arch}: a foreign architecture is killed`);
  }
  t.equal(seccompProgram('mips'), undefined);
});

t.test('control groups of version 2: the nearest that is delegated', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'cgroup2-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  writeFileSync(join(root, 'cgroup.controllers'), 'cpu memory pids\n');
  mkdirSync(join(root, 'user/app'), { recursive: true });
  const none = ControlGroups.find({ root, own: '0::/user/app\n' });
  t.same([none.version, none.has('memory')], [2, false], 'nobody may: the self-test says so');
  t.same(none.group('sinkflex-sandbox-x').limits(), {});
});

t.test('ordinary life', { skip: reason }, async (t) => {
  const provider = makeSandboxProvider('local', { javascript: true, warm: 1 });
  t.teardown(() => provider.close());
  const s = await provider.create();
  const run = (language: 'python' | 'javascript' | 'shell', code: string, more: object = {}) => s.exec({ language, code, ...more });
  t.match(await run('python', 'import sys\nprint(input())\nprint("e", file=sys.stderr)\nsys.exit(3)', { stdin: 'fed' }), {
    status: 'exit',
    code: 3,
    stdout: 'fed\n',
    stderr: 'e\n',
  });
  t.match(await run('javascript', "console.log(require('fs').readFileSync(0, 'utf8')); process.exitCode = 4", { stdin: 'fed' }), {
    code: 4,
    stdout: 'fed\n',
  });
  const thrown = await run('javascript', 'throw new Error("of the program")');
  t.match(thrown, { code: 1, stderr: /main\.js:1[\s\S]*of the program/ });
  t.notMatch(thrown.stderr, import.meta.dirname.split('/').slice(0, -3).join('/'), 'nothing of the host is in the trace');
  // Each has a Node of its own that nobody used before, though it starts from what others start from.
  const alone = 'console.log(globalThis.kept, process.argv.length, require.main === module, Math.random()); globalThis.kept = 1';
  const [first, second] = [await run('javascript', alone), await run('javascript', alone)];
  for (const { stdout } of [first, second]) t.match(stdout, /^undefined 2 true 0\.\d+\n$/);
  t.not(first.stdout, second.stdout);
  await s.writeFile(
    'child.mjs',
    "import { parentPort } from 'node:worker_threads'; (parentPort ?? process).send?.('fork') ?? parentPort?.postMessage('worker')",
  );
  const others = `
    const say = (from) => new Promise((go) => from.on('message', go)).then(console.log);
    say(require('node:child_process').fork('./child.mjs'))
      .then(() => say(new (require('node:worker_threads').Worker)('./child.mjs')))
      .then(() => import('/episode/child.mjs'))
      .then(() => console.log('module'));`;
  t.match(await run('javascript', others), { code: 0, stdout: 'fork\nworker\nmodule\n' }, 'what a program starts are ordinary Nodes');
  t.match(await run('shell', 'cat; echo $HOME; exit 5', { stdin: 'x'.repeat(200_000) }), { code: 5, truncated: true });
  t.match(await run('python', 'def f():\n    return 1 / 0\nf()'), {
    code: 1,
    stderr: /line 3, in <module>[\s\S]*line 2, in f[\s\S]*ZeroDivisionError/,
  });
  t.match(await run('python', 'print("é" + chr(0x1F600))\nimport sys\nsys.exit("said")'), { code: 1, stdout: 'é😀\n', stderr: 'said\n' });
  t.match(
    await run('python', 'print("x" * 1000, end="END")', { maxOutputBytes: 500 }),
    { stdout: `${'x'.repeat(497)}END`, truncated: true },
    'the last of it',
  );
  t.match(await run('python', 'syntax error here'), { code: 1, stderr: /SyntaxError/ });
  await s.writeFile('data/in.txt', 'from outside');
  t.match(await run('python', 'print(open("data/in.txt").read())\nopen("out.txt", "w").write("from inside")'), {
    stdout: 'from outside\n',
  });
  t.equal(String(await s.readFile('out.txt')), 'from inside', 'files stay for the episode');
  t.match(await run('python', 'while True: pass', { timeoutMs: 60 }), { status: 'timeout', code: null });
  t.match(await run('python', 'print("goes on")'), { stdout: 'goes on\n' });
  const other = await provider.create();
  t.match(await other.exec({ language: 'shell', code: 'ls /episode' }), { stdout: '' }, 'another episode has nothing of this one');
  const { created, hits, hitRate } = provider.stats();
  t.same([created, hits >= 1, hitRate === hits / 2], [2, true, true]);
  for (const bad of [{ timeoutMs: 0 }, { timeoutMs: Number.NaN }, { maxOutputBytes: -1 }, { language: 'perl' as 'python' }])
    await t.rejects(s.exec({ language: 'python', code: '', ...bad }), { code: 'SINKFLEX_SANDBOX_OPTION' });
});

t.test('a supervisor that is killed or stands still is lost: an error, never a result', { skip: reason }, async (t) => {
  const provider = makeSandboxProvider('local', { graceMs: 150 });
  t.teardown(() => provider.close());
  for (const signal of ['SIGKILL', 'SIGSTOP'] as const) {
    const s = await provider.create();
    const pids = processesOf(process.pid).map(Number);
    const running = s.exec({ language: 'python', code: 'import time\ntime.sleep(30)', timeoutMs: 200 });
    running.catch(() => {});
    for (const pid of pids) process.kill(pid, signal);
    await t.rejects(running, { code: 'SINKFLEX_SANDBOX_LOST' }, signal);
    await t.rejects(s.exec({ language: 'python', code: '1' }), { code: 'SINKFLEX_SANDBOX_LOST' });
    await s.close();
  }
  t.equal(provider.stats().lost, 2);
});

t.test('a hundred at once leave nothing behind', { skip: reason }, async (t) => {
  const count = (path: string) => readdirSync(path).length;
  const mounts = () => readFileSync('/proc/self/mounts', 'utf8').split('\n').length;
  const provider: SandboxProvider = makeSandboxProvider('local', { warm: 4 });
  await (await provider.create()).close();
  await until('the pool is full', () => provider.stats().warm === 4 && provider.list().length === 4);
  const before = { files: count('/proc/self/fd'), mounts: mounts() };
  const results = await Promise.all(
    Array.from({ length: 100 }, async (_, i) => {
      const s = await provider.create();
      try {
        return (
          await s.exec({
            language: 'python',
            code: `import os\nos.fork()\nopen("f", "w").write("x")\nif os.getpid() < 100000: print(${i} * 2)`,
            timeoutMs: 20_000,
          })
        ).stdout.split('\n')[0];
      } finally {
        await s.close();
      }
    }),
  );
  t.same(
    results,
    Array.from({ length: 100 }, (_, i) => String(i * 2)),
  );
  await until('the pool is full again', () => provider.stats().warm === 4 && provider.list().length === 4);
  t.same({ files: count('/proc/self/fd'), mounts: mounts() }, before, 'files and mounts as before');
  t.equal(provider.stats().open, 0);
  await provider.close();
  t.same([groupsOf(process.pid), processesOf(process.pid), slotsOf(process.pid)], [[], [], []]);
});

t.test('an owner that is killed takes everything with it within two seconds', { skip: reason }, async (t) => {
  const child = spawn(process.execPath, [owner, 'hold'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface(child.stdout!), 'line')) as [string];
  t.ok(JSON.parse(line).ready >= 2, line);
  const pid = child.pid!;
  await until('its programs run', () => processesOf(pid).length > 6);
  child.kill('SIGKILL');
  await once(child, 'exit');
  await until('no process of it runs', () => processesOf(pid).length === 0);
  await until('no control group and no slot of it stands', () => groupsOf(pid).length === 0 && slotsOf(pid).length === 0);
});

t.test('what neither owner nor janitor removed goes at the next start', { skip: reason }, async (t) => {
  const slots = new Slots();
  const groups = ControlGroups.find();
  // As a process of an earlier boot left it.
  const group = groups.group('sinkflex-sandbox-1-left-0');
  for (const folder of group.folders) mkdirSync(folder, { recursive: true });
  const slot = join(slots.folder, 'slot-4095');
  writeFileSync(slot, JSON.stringify({ pid: 1, startTime: 'another', boot: 'another', groups: group.folders }));
  const own = join(slots.folder, 'sinkflex-sandbox-99999999-left');
  mkdirSync(own);
  const provider = makeSandboxProvider('local');
  await (await provider.create()).close();
  await provider.close();
  t.notOk(existsSync(own));
  t.same(
    group.folders.filter((f) => existsSync(f)),
    [],
  );
  t.notOk(existsSync(slot));
});

t.test(
  'an ordinary user is refused or contained',
  { skip: reason || (process.getuid?.() === 0 ? false : 'takes root, to become somebody else') },
  async (t) => {
    const state = mkdtempSync(join(tmpdir(), 'sinkflex-ordinary-'));
    t.teardown(() => rmSync(state, { recursive: true, force: true }));
    const { chownSync } = await import('node:fs');
    chownSync(state, 65534, 65534);
    const child = spawn(
      'setpriv',
      ['--reuid', '65534', '--regid', '65534', '--clear-groups', '--', process.execPath, owner, 'ordinary', state],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    let said = '';
    child.stderr!.on('data', (d) => {
      said += d;
    });
    const closed = once(child, 'close');
    let line = '';
    child.stdout!.on('data', (d) => {
      line += d;
    });
    await closed;
    if (line === '' && /EACCES|permission denied|MODULE_NOT_FOUND/i.test(said)) {
      t.comment('this folder cannot be read by others');
      return;
    }
    const { refused, waived } = JSON.parse(line) as {
      refused: { code?: string; missing?: string[]; status?: string };
      waived: { status?: string; stdout?: string; code?: string } | null;
    };
    if (refused.status === 'exit') return;
    t.equal(refused.code, 'SINKFLEX_SANDBOX_UNSAFE', 'refused before the first program');
    t.ok(
      refused.missing!.length > 0 && refused.missing!.every((m) => ['memory', 'cpu', 'start', 'processes'].includes(m)),
      String(refused.missing),
    );
    if (waived?.status !== undefined) t.match(waived, { status: 'exit', stdout: /^97 65534 / }, 'the rest holds');
  },
);

t.test('gVisor', { skip: (await whyNoSandbox('runsc')) ?? false }, async (t) => {
  const provider = makeSandboxProvider('runsc');
  t.teardown(() => provider.close());
  const s = await provider.create();
  t.match(await s.exec({ language: 'python', code: 'import os\nprint(os.uname().release, os.getuid(), os.path.exists("/root"))' }), {
    stdout: /^4\.4\.0 65534 False/,
  });
  t.match(await s.exec({ language: 'python', code: 'while True: pass', timeoutMs: 100 }), { status: 'timeout' });
  await s.writeFile('x', 'y');
  t.equal(String(await s.readFile('x')), 'y');
  await s.close();
  t.same(groupsOf(process.pid), []);
});

t.test('unsafe-subprocess: runs, bounds, cleans up, and says what it is', async (t) => {
  const write = process.stderr.write;
  let said = '';
  process.stderr.write = ((text: string) => {
    said += text;
    return true;
  }) as typeof write;
  const provider = makeSandboxProvider('unsafe-subprocess');
  process.stderr.write = write;
  t.match(said, /trusted teaching code only/);
  const s = await provider.create();
  t.equal(s.info.isolation, 'none');
  t.match(await s.exec({ language: 'javascript', code: 'console.log(1 + 1)' }), { status: 'exit', code: 0, stdout: '2\n' });
  t.match(await s.exec({ language: 'shell', code: 'sleep 60 & sleep 60', timeoutMs: 100 }), { status: 'timeout' });
  t.match(await s.exec({ language: 'shell', code: 'yes', timeoutMs: 5000 }), { status: 'output_limit', truncated: true });
  await s.writeFile('a/b', 'c');
  t.equal(String(await s.readFile('a/b')), 'c');
  t.equal(await s.readFile('none'), undefined);
  await provider.close();
  await t.rejects(s.readFile('a/b'), { code: 'SINKFLEX_SANDBOX_LOST' });
});
