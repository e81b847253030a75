// Clusters that are started for a run: every launcher with the real head and agents. ssh against an sshd of this test; Slurm and Kubernetes
// with stand-ins for srun and kubectl, since neither is here.
import { type ChildProcess, execFileSync, spawn as startProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { StatefulSet } from 'kubernetes-models/apps/v1';
import { Job } from 'kubernetes-models/batch/v1';
import { Role, RoleBinding } from 'kubernetes-models/rbac.authorization.k8s.io/v1';
import { ConfigMap, Secret, Service, ServiceAccount } from 'kubernetes-models/v1';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { createQueue, init, listActors, listNodes, ready, shutdown } from '../../runtime/index.ts';
import { makeCertificates } from '../../scripts/certs.ts';
import { launcherOf, startCluster } from '../../scripts/cluster/index.ts';
import { agentManifests } from '../../scripts/cluster/kubernetes.ts';
import { expandCounts, expandNodeList } from '../../scripts/cluster/slurm.ts';
import { composeLaunch } from '../../scripts/launch.ts';
import { packageRoot } from '../../scripts/package-root.ts';

t.setTimeout(600_000);
delete process.env.NODE_OPTIONS;
// Sockets below it need short paths.
const base = mkdtempSync(join(tmpdir(), 'sfl-'));
process.env.TMPDIR = base;
const entry = join(packageRoot, 'dist/scripts/sinkflex.js');
const children: ChildProcess[] = [];
t.teardown(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(base, { recursive: true, force: true });
});

const settings = async (...words: string[]) => (await composeLaunch(['tiny', ...words], {})).config.cluster;
const never = new AbortController().signal;
/** Folders of clusters that are still there. */
const left = (): string[] => readdirSync(base).filter((name) => name.startsWith('sinkflex-launch-'));
// The stand-ins come first in the path.
process.env.PATH = `${join(packageRoot, 'test/scripts/fixtures/bin')}:${process.env.PATH}`;
process.env.FAKE_NODE = process.execPath;
const lines = <T>(file: string): T[] =>
  readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

t.test('local: a whole run on two agents, through the death of its head', async (t) => {
  const output = join(base, 'run');
  const child = startProcess(
    process.execPath,
    [entry, 'launch', 'tiny', '--output', output, 'cluster.launcher=local', 'cluster.agents=2', 'trainer.total_training_steps=30'],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  children.push(child);
  let errors = '';
  const seen = new Promise<void>((resolve) => {
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
      if (/grpo|step/.test(errors)) resolve();
    });
  });
  const closed = once(child, 'close');
  await Promise.race([seen, closed]);
  const folder = join(base, left()[0]!, 'head');
  process.kill((JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8')) as { pid: number }).pid, 'SIGKILL');
  const [code] = (await closed) as [number];
  t.equal(code, 0, errors);
  t.match(errors, /the head died \(SIGKILL\) and is started again/);
  t.match(JSON.parse(readFileSync(join(output, 'result.json'), 'utf8')), { steps: 30 });
  t.same(left(), [], 'nothing is left of the cluster');
});

t.test('what waits for room gets more agents, up to a limit', async (t) => {
  const notes: string[] = [];
  const cluster = await startCluster(
    await settings('cluster.launcher=local', 'cluster.agents=1', 'cluster.agent_cpus=2', 'cluster.max_agents=3'),
    never,
    (text) => notes.push(text),
  );
  try {
    await init({ address: cluster.settings.address! });
    const queues = Array.from({ length: 5 }, () => createQueue({ cpus: 1 }));
    const large = createQueue({ cpus: 64 }); // no agent could hold it
    await Promise.all(queues.map((queue) => ready(queue, { timeoutMs: 60_000 })));
    t.same((await listNodes()).map(({ node }) => node).sort(), ['local-0', 'local-1', 'local-2']);
    t.match(notes.at(-1), /2 more agents \(local-1, local-2\)/);
    t.equal(listActors().filter(({ state }) => state === 'pending').length, 1);
    large.size().then(
      () => {},
      () => {},
    );
  } finally {
    await shutdown();
    await cluster.close();
  }
  t.same(left(), []);
});

const sshd = '/usr/sbin/sshd';
const whyNot = !existsSync(sshd) ? 'needs sshd' : process.getuid?.() !== 0 ? 'needs root, as sshd does' : false;

t.test('ssh: the program goes there once, and agents run from it', { skip: whyNot }, async (t) => {
  const home = join(base, 'home');
  mkdirSync(home, { mode: 0o700 });
  mkdirSync('/run/sshd', { recursive: true });
  for (const key of ['host', 'user']) execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(base, key)]);
  const port = await freePort();
  const lines = [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${base}/host`,
    `AuthorizedKeysFile ${base}/user.pub`,
    'StrictModes no',
    'PidFile none',
    'UsePAM no',
    `SetEnv HOME=${home}`,
  ];
  writeFileSync(join(base, 'sshd_config'), `${lines.join('\n')}\n`);
  const daemon = startProcess(sshd, ['-D', '-e', '-f', join(base, 'sshd_config')], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(daemon);
  await once(daemon.stderr, 'data'); // it listens
  const options = [
    '-i',
    join(base, 'user'),
    '-o',
    'StrictHostKeyChecking=no',
    '-o',
    'UserKnownHostsFile=/dev/null',
    '-o',
    'LogLevel=ERROR',
  ];
  const words = [
    'cluster.launcher=ssh',
    `cluster.hosts=["127.0.0.1:${port}","localhost:${port}"]`,
    'cluster.head_host=127.0.0.1',
    `cluster.node_path=${process.execPath}`,
    `cluster.ssh_options=${JSON.stringify(options)}`,
  ];
  const cluster = await startCluster(await settings(...words), never, () => {});
  const programs = join(home, '.cache/sinkflex/programs');
  try {
    const bundles = readdirSync(programs);
    t.equal(bundles.length, 1, 'two agents that come at once share one bundle, and nothing half is left');
    t.match(bundles[0], /^[0-9a-f]{64}$/);
    await init({ address: cluster.settings.address! });
    t.same((await listNodes()).map(({ node }) => node).sort(), ['127.0.0.1-0', 'home', 'localhost-1']);
    const queue = createQueue<number>({ strategy: { node: 'localhost-1' }, name: 'there' });
    await queue.put(7);
    t.equal(await queue.get(), 7);
    const { pid } = listActors().find(({ name }) => name === 'there')!;
    t.match(
      readFileSync(`/proc/${pid}/maps`, 'utf8'),
      join(programs, bundles[0]!, 'build/Release/sinkflex.node'),
      'its code is that of the bundle',
    );
    t.notMatch(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), packageRoot.concat('/'));

    const folder = cluster.settings.address!;
    const { door } = JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8')) as { door: { url: string } };
    const hosts = `cluster.hosts=["localhost:${port}","127.0.0.1:1"]`;
    const launcher = launcherOf(await settings(words[0]!, hosts, ...words.slice(2)));
    const place = { folder, tokenFile: join(folder, 'token'), url: door.url, certify: undefined };
    const before = readdirSync(join(home, '.cache/sinkflex/clusters'));
    await t.rejects(launcher.start(launcher.plan(), place, never), { code: 'SINKFLEX_LAUNCH', message: /127\.0\.0\.1:1/ });
    t.same(readdirSync(join(home, '.cache/sinkflex/clusters')), before, 'when one host fails, the agents of the others are ended');
  } finally {
    await shutdown();
    await cluster.close();
  }
  t.same(readdirSync(join(home, '.cache/sinkflex/clusters')), [], 'the token went with the agents');
  await t.rejects(
    startCluster(await settings(...words.slice(0, 3), 'cluster.node_path=/nowhere/node', words[4]!), never, () => {}),
    {
      code: 'SINKFLEX_LAUNCH',
      message: /cluster\.node_path.*(127\.0\.0\.1|localhost)/,
    },
  );
  await t.rejects(
    startCluster(await settings('cluster.launcher=ssh', 'cluster.hosts=["-oProxyCommand=x"]'), never, () => {}),
    { code: 'SINKFLEX_USAGE' },
  );
  t.same(left(), []);
});

t.test('slurm: one step a node, with what the allocation says', async (t) => {
  process.env.FAKE_SRUN_LOG = join(base, 'srun.log');
  Object.assign(process.env, { SLURM_JOB_NODELIST: 'gpu[07-09]', SLURM_JOB_CPUS_PER_NODE: '16,4(x2)', MASTER_ADDR: '127.0.0.1' });
  t.teardown(() => {
    for (const name of ['SLURM_JOB_NODELIST', 'SLURM_JOB_CPUS_PER_NODE', 'MASTER_ADDR']) delete process.env[name];
  });
  const cluster = await startCluster(await settings('cluster.launcher=slurm'), never, () => {});
  try {
    await init({ address: cluster.settings.address! });
    t.same(
      (await listNodes())
        .filter(({ node }) => node !== 'home')
        .map(({ node, total }) => [node, total.cpus])
        .sort(),
      [
        ['slurm-gpu08', 4],
        ['slurm-gpu09', 4],
      ],
    );
    t.match(lines<string[]>(process.env.FAKE_SRUN_LOG).sort(), [
      ['--nodes=1', '--ntasks=1', '--nodelist=gpu08'],
      ['--nodes=1', '--ntasks=1', '--nodelist=gpu09'],
    ]);
  } finally {
    await shutdown();
    await cluster.close();
  }
});

t.test("Slurm's lists of nodes and counts", async (t) => {
  t.same(expandNodeList('a[01-03,7],b,c[1-2]-x[8-9]'), ['a01', 'a02', 'a03', 'a7', 'b', 'c1-x8', 'c1-x9', 'c2-x8', 'c2-x9']);
  t.same(expandCounts('4(x2),8'), [4, 4, 8]);
  for (const bad of ['', 'a[', 'a[2-1]', 'a[x]', 'a]', 'a[1-999999999]'])
    t.throws(() => expandNodeList(bad), { code: 'SINKFLEX_USAGE' }, bad);
  t.throws(() => expandCounts('4(2)'), { code: 'SINKFLEX_USAGE' });
  // Any list of names with numbers, written as Slurm does, comes back.
  const range = fc.tuple(fc.nat(99), fc.nat(5)).map(([from, more]) => ({ from, to: from + more }));
  fc.assert(
    fc.property(
      fc.array(fc.record({ name: fc.stringMatching(/^[a-z]{1,5}$/), ranges: fc.array(range, { minLength: 1, maxLength: 3 }) }), {
        minLength: 1,
        maxLength: 4,
      }),
      (parts) => {
        const pad = (n: number): string => String(n).padStart(3, '0');
        const text = parts
          .map(
            ({ name, ranges }) =>
              `${name}[${ranges.map(({ from, to }) => (from === to ? pad(from) : `${pad(from)}-${pad(to)}`)).join(',')}]`,
          )
          .join(',');
        const names = parts.flatMap(({ name, ranges }) =>
          ranges.flatMap(({ from, to }) => Array.from({ length: to - from + 1 }, (_, i) => name + pad(from + i))),
        );
        return JSON.stringify(expandNodeList(text)) === JSON.stringify(names);
      },
    ),
    { seed: 7, numRuns: 200 },
  );
});

/** Kinds of the API, each held against its schema. */
const KINDS = { Secret, Service, ServiceAccount, ConfigMap, StatefulSet, Job, Role, RoleBinding } as unknown as Record<
  string,
  new (
    data: object,
  ) => { validate(): void }
>;
/** Names that the schemas know; their validators let unknown ones pass. */
const KNOWN = new Set<string>();
for (const folder of ['kubernetes-models', '@kubernetes-models/apimachinery']) {
  const schemas = join(packageRoot, 'node_modules', folder, '_schemas');
  for (const file of readdirSync(schemas).filter((name) => name.endsWith('.mjs')))
    for (const [, name] of readFileSync(join(schemas, file), 'utf8').matchAll(/data\w*\.(\w+)/g)) KNOWN.add(name!);
}
/** Below these names are those of users. */
const FREE = new Set(['data', 'stringData', 'labels', 'matchLabels', 'selector', 'requests', 'limits', 'annotations']);

function unknown(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((each, i) => unknown(each, `${path}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => [
    ...(KNOWN.has(name) ? [] : [`${path}.${name}`]),
    ...(FREE.has(name) && !(name === 'selector' && 'matchLabels' in (inner as object)) ? [] : unknown(inner, `${path}.${name}`)),
  ]);
}

t.test('kubernetes: manifests are as the API wants them, and kubectl gets them', async (t) => {
  const documents = (name: string) =>
    parseAllDocuments(readFileSync(join(packageRoot, 'scripts/deploy', name), 'utf8')).map((each) => each.toJS() as { kind: string });
  const holds = (manifest: { kind: string }): void => {
    t.doesNotThrow(() => new KINDS[manifest.kind]!(manifest).validate(), manifest.kind);
    t.same(unknown(manifest), [], `every name in ${manifest.kind} is of the API`);
  };
  for (const manifest of documents('job.yaml')) holds(manifest);
  t.throws(() => new StatefulSet({ ...documents('agents.yaml')[2], spec: { replicas: 'two' } } as never).validate(), 'the schema is one');
  t.same(unknown({ spec: { replicass: 1 } }), ['.spec.replicass']);

  const folder = join(base, 'k');
  mkdirSync(folder);
  writeFileSync(join(folder, 'token'), 'ab'.repeat(32));
  const certify = (...names: string[]) => makeCertificates(join(folder, 'certs'), names);
  const chosen = await settings(
    'cluster.launcher=kubernetes',
    'cluster.image=registry.example/x:1',
    'cluster.agents=3',
    'cluster.namespace=rl',
    'cluster.agent_cpus=4',
  );
  const agents = [0, 1, 2].map((i) => ({ node: `agent-${i}`, where: 'a pod', here: false, resources: {} }));
  const manifests = await agentManifests(chosen, agents, {
    folder,
    tokenFile: join(folder, 'token'),
    url: 'wss://head.rl.svc:7400',
    certify,
  });
  for (const manifest of manifests) holds(manifest);
  const [secret, , set] = manifests as [
    { data: Record<string, string> },
    unknown,
    { spec: { replicas: number; template: { spec: { containers: { args: string[] }[] } } } },
  ];
  t.equal(Buffer.from(secret.data.token!, 'base64').toString(), 'ab'.repeat(32));
  t.equal(set.spec.replicas, 3);
  t.match(set.spec.template.spec.containers[0]!.args, ['agent', '--join', 'wss://head.rl.svc:7400']);
  t.notMatch(JSON.stringify(manifests), /FILLED-IN|RklMTEVELUlO/, 'nothing is left open');
  t.notMatch(JSON.stringify(set), 'abab', 'the token is in the Secret alone');

  process.env.FAKE_KUBECTL_LOG = join(base, 'kubectl.log');
  await t.rejects(
    startCluster({ ...chosen, wait_s: 0.5, head_host: '127.0.0.2' }, never, () => {}),
    { code: 'SINKFLEX_USAGE', message: /pods do not reach loopback/ },
  );
  const address = ownAddress();
  if (address === undefined) {
    t.comment('this machine has no address but loopback: kubectl is not called');
    return;
  }
  await t.rejects(
    startCluster({ ...chosen, wait_s: 0.5, head_host: address }, never, () => {}),
    { code: 'SINKFLEX_LAUNCH', message: /1 of 4 agents joined/ },
  );
  const calls = lines<{ words: string[]; input: string }>(process.env.FAKE_KUBECTL_LOG);
  t.same(
    calls.map(({ words }) => words[0]),
    ['apply', 'delete'],
    'what was started is taken down again',
  );
  t.same(
    parseAllDocuments(calls[0]!.input).map((each) => (each.toJS() as { kind: string }).kind),
    ['Secret', 'Service', 'StatefulSet'],
  );
  t.same(left(), []);
});

t.test('an agent whose program is elsewhere runs its own copy', async (t) => {
  const [one, two] = ['one', 'two'].map((name) => {
    const root = join(base, name);
    mkdirSync(join(root, 'node_modules'), { recursive: true });
    symlinkSync(packageRoot, join(root, 'node_modules/sinkflex'));
    writeFileSync(join(root, 'package.json'), '{"name":"app","type":"module"}');
    writeFileSync(
      join(root, 'where.js'),
      `import { defineActor } from 'sinkflex/runtime';\nexport const Where = defineActor(import.meta.url, 'Where', class { at() { return import.meta.url; } });\n`,
    );
    return root;
  });
  const cluster = await startCluster(await settings('cluster.launcher=manual', 'cluster.wait_s=60', 'cluster.agents=1'), never, (note) => {
    if (!note.startsWith('a cluster of')) return;
    const folder = join(base, left()[0]!, 'head');
    const { door } = JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8')) as { door: { url: string } };
    const words = ['agent', '--join', door.url, '--token-file', join(folder, 'token'), '--node', 'there', '--program', two!];
    children.push(startProcess(process.execPath, [entry, ...words], { stdio: 'ignore' }));
  });
  try {
    const words = [
      fileURLToPath(new URL('./fixtures/where-driver.js', import.meta.url)),
      cluster.settings.address!,
      join(one!, 'where.js'),
    ];
    const said = JSON.parse(execFileSync(process.execPath, words, { encoding: 'utf8' })) as string[];
    t.match(said, [`file://${one}/where.js`, `file://${two}/where.js`]);
  } finally {
    await cluster.close();
  }
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** An address of this machine that is not loopback. */
const ownAddress = (): string | undefined =>
  Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4')?.address;
