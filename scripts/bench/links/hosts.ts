// Hosts for a measurement: a head and agents that joined it by URL, each with sockets and shared memory of its own, on this machine.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { init, shutdown } from '../../../runtime/index.ts';
import { makeCertificates } from '../../certs.ts';
import { type Running, runHere } from '../../cluster/processes.ts';

export interface BenchHosts {
  /** Names of their nodes. */
  nodes: string[];
  tls: { ca: string; cert: string; key: string } | undefined;
}

/** With as many hosts, and this process as the driver. */
export async function withHosts<T>(
  count: number,
  o: { tls: boolean; storeBytes: number },
  work: (hosts: BenchHosts) => Promise<T>,
): Promise<T> {
  const base = mkdtempSync(join(tmpdir(), 'sf-links-'));
  const folder = join(base, 'head');
  const tls = o.tls ? await makeCertificates(join(base, 'certs'), ['127.0.0.1']) : undefined;
  const words = tls === undefined ? [] : ['--tls-ca', tls.ca, '--tls-cert', tls.cert, '--tls-key', tls.key];
  const running: Running[] = [];
  try {
    const head = runHere(['head', '--folder', folder, '--listen', '127.0.0.1:0', '--json', '--attended', ...words]);
    running.push(head);
    const url = (await head.said).url as string;
    const token = join(folder, 'token');
    const nodes = Array.from({ length: count }, (_, i) => `host-${i}`);
    for (const node of nodes) {
      const join = ['agent', '--join', url, '--token-file', token, '--listen', '127.0.0.1:0', '--node', node];
      running.push(runHere([...join, '--object-store-memory', String(o.storeBytes), '--json', '--attended', ...words]));
    }
    await Promise.all(running.map(({ said }) => said));
    await init({ address: folder });
    return await work({ nodes, tls });
  } finally {
    await shutdown({ timeoutMs: 2000 });
    for (const each of running) await each.stop();
    rmSync(base, { recursive: true, force: true });
  }
}
