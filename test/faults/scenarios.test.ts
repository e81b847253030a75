// The fault suite: each scenario of scenarios.ts is a cluster of its own that does a job while something goes wrong. The job ends with the right
// result or the right typed error in time, every item is in the book once, and nothing of the cluster is left.
// SINKFLEX_FAULTS: how many of them, `all`, or a part of a name; by default the first two.
import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Namespaces, noNamespaces } from '../runtime/fixtures/namespaces.ts';
import { FaultCluster } from './cluster.ts';
import type { JobOrder, JobResult } from './job.ts';
import { type NetworkFault, type Scenario, scenarios } from './scenarios.ts';

const HOSTS = ['home', 'east', 'west'];
const wanted = process.env.SINKFLEX_FAULTS ?? '2';
const chosen =
  wanted === 'all'
    ? scenarios
    : /^\d+$/.test(wanted)
      ? scenarios.slice(0, Number(wanted))
      : scenarios.filter(({ name }) => name.includes(wanted));
t.setTimeout(600_000 + 60_000 * chosen.length);
/** What a bound means is said for a machine that does nothing else, as when the suite is asked for; among other tests all is slower. */
const PATIENCE = Number(process.env.SINKFLEX_FAULTS_PATIENCE ?? (process.env.SINKFLEX_FAULTS === undefined ? 10 : 1));

const shared = (): string[] => readdirSync('/dev/shm');

for (const scenario of chosen) {
  const needsRoot = scenario.network !== undefined || scenario.diskBytes !== undefined;
  const skip = needsRoot && noNamespaces !== '' ? `NOT TRIED: ${noNamespaces}` : false;
  if (skip !== false) process.stderr.write(`${scenario.name}: ${skip}\n`);
  t.test(scenario.name, { skip, timeout: 0 }, async (t) => {
    const before = shared();
    const net = scenario.network === undefined ? undefined : new Namespaces(HOSTS);
    const disk: string[] = [];
    try {
      const cluster = await FaultCluster.start(net, scenario.headBackMs, (folder) => {
        if (scenario.diskBytes === undefined) return;
        execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${scenario.diskBytes},mode=0700`, 'tmpfs', folder]);
        disk.push(folder);
      });
      try {
        const began = performance.now();
        const said = await play(scenario, cluster, net);
        const tookMs = performance.now() - began;
        if (scenario.error === undefined) endsWell(t, scenario, said);
        else t.match(said, { code: scenario.error }, JSON.stringify(said));
        t.ok(tookMs < scenario.withinMs * PATIENCE, `in ${Math.round(tookMs)} ms`);
      } finally {
        const left = await cluster.close();
        for (const folder of disk.splice(0)) execFileSync('umount', ['-l', folder]);
        t.same(
          left.filter((file) => scenario.diskBytes === undefined || file !== 'c'),
          [],
          'no process and no file is left',
        );
        cluster.remove();
      }
    } finally {
      net?.remove();
    }
    t.same(Namespaces.left(), [], 'no namespace is left');
    t.same(
      shared().filter((name) => !before.includes(name) && !name.includes('fuzz')),
      [],
      'no shared memory is left',
    );
  });
}

async function play(scenario: Scenario, cluster: FaultCluster, net: Namespaces | undefined): Promise<JobResult | { code: string }> {
  const { faults = [], network = [], maxRestarts = 100, ballast = 100, soft = true, timeoutMs = 40_000 * PATIENCE } = scenario;
  const planned = faults.map((fault) => ('folder' in fault ? { ...fault, folder: cluster.folder } : fault));
  const last = Math.max(
    0,
    ...planned.map(({ at, every, times = 1 }) => Number(at ?? 0) + Number(every ?? 0) * times),
    ...network.map(({ atMs, forMs }) => atMs + forMs),
  );
  const order: JobOrder = { plan: { seed: 11, faults: planned }, leastMs: last + 200, maxRestarts, ballast, soft, timeoutMs };
  const file = join(cluster.base, 'order.json');
  writeFileSync(file, JSON.stringify(order));
  const driver = cluster.drive(file);
  const first = await driver.line();
  if ('code' in first) return first as { code: string };
  const undo = network.map(({ atMs, forMs, host, what }) => {
    let heal: (() => void) | undefined;
    const timers = [
      setTimeout(() => (heal = strike(net!, host, what)), atMs),
      setTimeout(() => {
        heal?.();
        heal = undefined;
      }, atMs + forMs),
    ];
    return () => {
      for (const timer of timers) clearTimeout(timer);
      heal?.();
    };
  });
  try {
    return (await driver.line()) as unknown as JobResult | { code: string };
  } finally {
    for (const each of undo) each();
  }
}

type Asserts = Pick<typeof import('tap').t, 'equal' | 'match' | 'ok' | 'same' | 'fail'>;

/** Answers how to put it right. */
function strike(net: Namespaces, host: string, what: NetworkFault): () => void {
  switch (what) {
    case 'drop':
      return net.rules(host, 'drop', 'drop');
    case 'in only':
      return net.rules(host, '', 'drop');
    case 'out only':
      return net.rules(host, 'drop', '');
    case 'reset':
      return net.rules(host, 'meta l4proto tcp reject with tcp reset', 'meta l4proto tcp reject with tcp reset');
    case 'lose':
      return net.rules(host, 'numgen random mod 100 < 20 drop', 'numgen random mod 100 < 20 drop');
    case 'rate':
      return net.rules(host, 'limit rate over 300 kbytes/second drop', '');
    case 'large packets':
      return net.rules(host, 'meta length > 1000 drop', 'meta length > 1000 drop');
    case 'drop west':
      return net.rules(host, `ip saddr ${net.address('home')} drop`, `ip daddr ${net.address('home')} drop`);
    case 'link down':
      return net.unplug(host);
  }
}

function endsWell(t: Asserts, { faults = [], once = false, answersMs }: Scenario, said: JobResult | { code: string }): void {
  if ('code' in said) {
    t.fail(`it ended with ${JSON.stringify(said)}`);
    return;
  }
  const { items, sum, books, report } = said;
  t.equal(sum, (items * (items - 1) * (2 * items - 1)) / 6, 'the right result');
  t.match(books, { entered: items, sum }, 'every item is in the book once');
  if (once) t.equal(books.repeated, 0, 'nothing was done twice');
  t.ok(report.injected.length >= Math.min(1, faults.length), `${report.injected.length} faults`);
  for (const { fault, target, failed, recoveredMs } of report.injected) {
    // One that was just being started again cannot be killed.
    const missed = failed?.includes('has no process of its own here') ?? false;
    t.ok(missed || recoveredMs !== undefined, `${fault} ${target}: ${failed ?? `recovered after ${recoveredMs} ms`}`);
  }
  t.same(report.lost.actors, [], 'nothing was lost');
  if (answersMs !== undefined) t.ok(said.slowestMs < answersMs * PATIENCE, `no call took longer than ${said.slowestMs} ms`);
}
