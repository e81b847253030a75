// Hosts that are network namespaces with addresses of their own, over TLS: calls between them, and a partition that heals.
import { type ChildProcess, execFileSync, spawn as startProcess } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { makeCertificates } from '../../scripts/certs.ts';

const has = (program: string): boolean => ['/usr/sbin', '/sbin', '/usr/bin', '/bin'].some((folder) => existsSync(join(folder, program)));
const missing = ['ip', 'nft', 'openssl'].filter((program) => !has(program));
const why =
  process.getuid?.() !== 0
    ? 'needs root for network namespaces'
    : missing.length > 0
      ? `needs ${missing.join(', ')} (iproute2, nftables, openssl)`
      : '';
t.setTimeout(600_000);
delete process.env.NODE_OPTIONS;

const base = mkdtempSync(join(tmpdir(), 'sf-net-'));
const id = `sf${process.pid % 100_000}`;
const names = ['a', 'b', 'c'];
const address = (name: string): string => `10.77.${process.pid % 250}.${names.indexOf(name) + 1}`;
const ip = (...words: string[]): void => void execFileSync('ip', words, { stdio: ['ignore', 'ignore', 'pipe'] });
const space = (name: string): string => `${id}${name}`;
const children: ChildProcess[] = [];

function makeNetwork(): void {
  ip('netns', 'add', `${id}x`);
  ip('-n', `${id}x`, 'link', 'add', 'br0', 'type', 'bridge');
  ip('-n', `${id}x`, 'link', 'set', 'br0', 'up');
  for (const name of names) {
    ip('netns', 'add', space(name));
    ip('link', 'add', 'eth0', 'netns', space(name), 'type', 'veth', 'peer', 'name', `to-${name}`, 'netns', `${id}x`);
    ip('-n', `${id}x`, 'link', 'set', `to-${name}`, 'master', 'br0', 'up');
    ip('-n', space(name), 'addr', 'add', `${address(name)}/24`, 'dev', 'eth0');
    ip('-n', space(name), 'link', 'set', 'eth0', 'up');
    ip('-n', space(name), 'link', 'set', 'lo', 'up');
  }
}

function removeNetwork(): void {
  for (const child of children) child.kill('SIGKILL');
  for (const name of [...names, 'x'])
    try {
      ip('netns', 'del', space(name));
    } catch {
      // It was not made.
    }
  rmSync(base, { recursive: true, force: true });
}

interface Started {
  child: ChildProcess;
  /** Its next line, as JSON. */
  line(): Promise<Record<string, unknown>>;
}

function inside(name: string, tls: Record<string, string>, program: string, ...words: string[]): Started {
  const path = fileURLToPath(new URL(`./fixtures/${program}.js`, import.meta.url));
  const child = startProcess('ip', ['netns', 'exec', space(name), process.execPath, path, ...words], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, ...tls },
  });
  children.push(child);
  let text = '';
  const waiting: (() => void)[] = [];
  child.stdout!.on('data', (chunk) => {
    text += chunk;
    for (const each of waiting.splice(0)) each();
  });
  let ended = false;
  child.once('exit', () => {
    ended = true;
    for (const each of waiting.splice(0)) each();
  });
  return {
    child,
    async line() {
      while (!text.includes('\n')) {
        if (ended) throw new Error(`${program} ${words.join(' ')} in ${name} has ended`);
        await new Promise<void>((resolve) => waiting.push(resolve));
      }
      const at = text.indexOf('\n');
      const line = text.slice(0, at);
      text = text.slice(at + 1);
      return JSON.parse(line) as Record<string, unknown>;
    },
  };
}

t.test('three hosts over TLS, and a partition between two of them that heals', { skip: why === '' ? false : why }, async (t) => {
  t.teardown(removeNetwork);
  makeNetwork();
  const folder = join(base, 'cluster');
  const tls = new Map<string, Record<string, string>>();
  for (const name of names) {
    const { ca, cert, key } = await makeCertificates(join(base, 'certs'), [address(name)]);
    tls.set(name, { SINKFLEX_TLS_CA: ca, SINKFLEX_TLS_CERT: cert, SINKFLEX_TLS_KEY: key });
  }
  const head = inside('a', tls.get('a')!, 'cluster-process', 'head', folder, `${address('a')}:7400`);
  const { url } = await head.line();
  t.equal(url, `wss://${address('a')}:7400`);
  const token = join(folder, 'token');
  const agents = ['b', 'c'].map((name) =>
    inside(name, tls.get(name)!, 'cluster-process', 'agent', url as string, name, token, `${address(name)}:0`),
  );
  await Promise.all(agents.map((agent) => agent.line()));
  const driver = inside('a', tls.get('a')!, 'hosts-driver', url as string, token, `${address('a')}:0`);
  t.same(await driver.line(), { sum: true, asked: 3, hosts: 2 });

  const rules = `table inet p { chain i { type filter hook input priority 0; ip saddr ${address('c')} drop; }; chain o { type filter hook output priority 0; ip daddr ${address('c')} drop; }; }`;
  execFileSync('ip', ['netns', 'exec', space('b'), 'nft', rules]);
  driver.child.stdin!.write('call\n');
  t.same(await driver.line(), { calling: true });
  await new Promise((resolve) => setTimeout(resolve, 5000)); // longer than silence is suffered, shorter than the lease
  execFileSync('ip', ['netns', 'exec', space('b'), 'nft', 'delete table inet p']);
  t.same(await driver.line(), { counts: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }, 'nothing is lost, and nothing comes twice');
  driver.child.stdin!.write('end\n');
  t.same(await driver.line(), { ended: true });
});
