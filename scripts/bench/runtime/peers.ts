// The rivals of the suite `runtime`, each kept in a process of its own for all rows of a run.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { peerPython } from '../../doctor.ts';
import { packageRoot } from '../../package-root.ts';
import { type Peer, startPeer } from '../kept-peer.ts';
import type { SuiteContext } from '../rows.ts';

export type { Peer };

const FOLDER = join(packageRoot, 'scripts', 'bench', 'peers');

/** Processes of gloo's group. */
export const GLOO_MEMBERS = 2;
const PEERS = {
  Ray: { script: 'ray_rows.py', args: [] },
  'Ray hosts': { script: 'ray_links.py', args: [] },
  gloo: { script: 'gloo_rows.py', args: [String(GLOO_MEMBERS)] },
};
export type PeerName = keyof typeof PEERS;

const running = new Map<PeerName, Promise<Peer>>();

/** Undefined without --peers; why not, where it cannot run here. */
export async function peerNamed(name: PeerName, context: SuiteContext): Promise<Peer | string | undefined> {
  if (!context.peers) return undefined;
  const script = join(FOLDER, PEERS[name].script);
  if (!existsSync(peerPython())) return `no Python at ${peerPython()} (SINKFLEX_PEERS)`;
  if (!existsSync(script)) return `no ${script}: peers are part of the repository, not of the package`;
  let peer = running.get(name);
  if (peer === undefined) {
    context.note(`starting ${name}`);
    context.atEnd(async () => {
      running.delete(name);
    });
    peer = startPeer(name, { command: peerPython(), args: [script, ...PEERS[name].args] }, context);
    running.set(name, peer);
  }
  try {
    return await peer;
  } catch (error) {
    return `${name} does not start: ${(error as Error).message}`;
  }
}

export const rayOf = (context: SuiteContext): Promise<Peer | string | undefined> => peerNamed('Ray', context);

/** Ray lets go of what an operation kept for its next turn. */
export async function endRay(context: SuiteContext, op: string): Promise<void> {
  const ray = await rayOf(context);
  if (typeof ray === 'object') await ray.ask(op);
}
