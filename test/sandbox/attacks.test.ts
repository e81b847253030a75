// Eighty-five attacks, each in a sandbox of its own: contained, and nothing is left of any of them.
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { ActorsError, makeSandboxProvider, type Sandbox } from '../../actors/index.ts';
import { attacks, program } from './attacks.ts';
import { attacksInside } from './attacks-inside.ts';
import { whyNoSandbox } from './support.ts';

const reason = await whyNoSandbox();

t.test(
  'attacks',
  { skip: reason ?? (process.arch === 'x64' ? false : 'the system-call numbers of the attacks are those of x86-64') },
  async (t) => {
    process.env.SINKFLEX_TEST_TOKEN = 'canary-of-the-owner';
    const provider = makeSandboxProvider('local', {
      javascript: true,
      warm: 2,
      limits: { memoryBytes: 160 * 2 ** 20, processes: 48, diskBytes: 8 * 2 ** 20 },
    });
    const abstract = `sinkflex-${randomBytes(6).toString('hex')}`;
    const tcp = createServer((s) => s.end()).listen(0, '127.0.0.1');
    const unix = createServer((s) => s.end()).listen(`\0${abstract}`);
    await Promise.all([tcp, unix].map((s) => new Promise((go) => s.once('listening', go))));
    const address = tcp.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    try {
      for (const attack of [...attacks({ port, abstract, home: homedir(), pid: process.pid }), ...attacksInside]) {
        const sandbox = await provider.create();
        const name = `${attack.n}. ${attack.name}`;
        const result = await sandbox.exec({
          language: attack.language ?? 'python',
          code: program(attack),
          timeoutMs: attack.timeoutMs ?? 5000,
        });
        const said = result.stdout.trim();
        const { sees } = attack;
        const held = typeof sees === 'string' ? said === sees : sees instanceof RegExp ? sees.test(said) : sees(result);
        t.ok(held, name, held ? {} : { ...result, wanted: String(sees) });
        t.ok(await aliveOrDead(sandbox, attack.mayDie ?? false), `${name}: the sandbox still works`);
        await sandbox.close();
      }
    } finally {
      tcp.close();
      unix.close();
      await provider.close();
    }
    t.same(provider.list(), [], 'none is left');
    t.same(leftOf(process.pid), [], 'no control group is left');
  },
);

/** What the next program sees beside itself and the supervisor: nothing but the Nodes for those after it, which begin as forks. */
const LOOK_AROUND = `
import math, os, time
def is_node(n):
    try:
        return open(f"/proc/{n}/cmdline", "rb").read().startswith(b"/opt/sinkflex/node\\0")
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended
    except OSError:
        return False
others = [n for n in os.listdir("/proc") if n.isdigit() and n not in ("1", str(os.getpid()))]
end = time.monotonic() + 2
while not all(map(is_node, others)) and time.monotonic() < end:
    time.sleep(0.002)
print(math.sqrt(4), len([1]), [n for n in others if not is_node(n)])
`;

/** The next program runs alone and unharmed; or the sandbox is gone by the program's own doing, which it says. */
async function aliveOrDead(sandbox: Sandbox, mayDie: boolean): Promise<boolean> {
  const next = await sandbox.exec({ language: 'python', code: LOOK_AROUND });
  if (next.status === 'agent_killed') return mayDie;
  const other = await sandbox.exec({ language: 'javascript', code: "console.log(require('fs').readFileSync(0, 'utf8'))", stdin: 'fed' });
  return (next.stdout.trim() === '2.0 1 []' && other.stdout === 'fed\n') || (mayDie && [next.status, other.status].includes('oom'));
}

function leftOf(pid: number): string[] {
  const found: string[] = [];
  for (const line of readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n')) {
    const [, names, path] = /^\d+:([^:]*):(.*)$/.exec(line)!;
    const folder = join('/sys/fs/cgroup', names === '' ? 'unified' : names!, path!);
    if (existsSync(folder)) found.push(...readdirSync(folder).filter((name) => name.startsWith(`sinkflex-sandbox-${pid}-`)));
  }
  return found;
}

t.test('files: links, pipes and paths of a program do not lead its owner astray', { skip: reason ?? false }, async (t) => {
  const provider = makeSandboxProvider('local');
  t.teardown(() => provider.close());
  const s = await provider.create({ labels: { episode: '7' } });
  const plant =
    'import os\nos.symlink("/proc/1/environ", "link")\nos.mkfifo("pipe")\nos.symlink("/usr", "up")\nos.symlink("/etc/passwd", "target.txt")\nos.mkdir("folder")\nopen("plain.txt", "w").write("x" * 100)';
  t.equal((await s.exec({ language: 'python', code: plant })).code, 0);
  t.equal(await s.readFile('link'), undefined, 'a link is not followed');
  t.equal(await s.readFile('pipe'), undefined, 'a pipe does not hang');
  t.equal(await s.readFile('folder'), undefined, 'a folder is no file');
  t.equal(await s.readFile('missing'), undefined);
  t.equal((await s.readFile('plain.txt', 10))?.length, 10, 'at most so much');
  await s.writeFile('target.txt', 'mine');
  t.equal(String(await s.readFile('target.txt')), 'mine', 'a planted link is replaced, not followed');
  await t.rejects(s.writeFile('up/x', 'y'), { code: 'SINKFLEX_SANDBOX_OPTION' }, 'a folder that leads to a read-only place');
  // Folders that lead elsewhere: nothing is read or written through them.
  t.equal(
    (
      await s.exec({
        language: 'python',
        code: 'import os\nos.symlink("/proc/1", "process")\nos.symlink("/tmp", "elsewhere")\nos.mkdir("a")\nos.symlink("../../usr", "a/b")',
      })
    ).code,
    0,
  );
  for (const path of ['process/environ', 'up/bin/env', 'a/b/bin/env', 'elsewhere/x']) t.equal(await s.readFile(path), undefined, path);
  for (const path of ['elsewhere/x', 'a/b/x', 'process/comm'])
    await t.rejects(s.writeFile(path, 'y'), { code: 'SINKFLEX_SANDBOX_OPTION' }, path);
  t.equal((await s.exec({ language: 'shell', code: 'ls -A /tmp a' })).stdout.trim(), '/tmp:\n\na:\nb', 'nothing was left anywhere');
  await s.writeFile('a/deep/er/x', 'written');
  t.equal(String(await s.readFile('a/./deep//er/x')), 'written');
  await s.exec({ language: 'shell', code: 'chmod 0 plain.txt' });
  t.equal(await s.readFile('plain.txt'), undefined, 'what cannot be read is not there');
  for (const path of ['../x', '/etc/passwd', 'a/../../b', '', 'a\0b'])
    await t.rejects(s.readFile(path), { code: 'SINKFLEX_SANDBOX_OPTION' }, JSON.stringify(path));
  t.match(provider.list(), [{ id: s.id, labels: { episode: '7' }, isolation: 'namespaces' }]);
  t.equal(await provider.destroy(s.id), true);
  t.equal(await provider.destroy(s.id), false);
  const gone = await s.exec({ language: 'python', code: '1' }).catch((e: unknown) => e);
  t.ok(gone instanceof ActorsError && gone.code === 'SINKFLEX_SANDBOX_LOST', 'a closed one is lost, never a result');
});
