// A runtime of its own for each row, so that no row is measured with what another left.
import {
  type ActorHandle,
  type InitOptions,
  type Isolation,
  init,
  ready,
  type SpawnOptions,
  shutdown,
  spawn,
} from '../../../runtime/index.ts';
import { Peer } from './actors.ts';

export type PeerHandle = ActorHandle<typeof Peer>;

export async function withRuntime<T>(work: () => Promise<T>, options: InitOptions = {}): Promise<T> {
  await init({ warmWorkers: { process: 0, thread: 0 }, ...options });
  try {
    return await work();
  } finally {
    await shutdown({ timeoutMs: 2000 });
  }
}

/** A peer that has answered: its channel is open, its methods are compiled. */
export async function peerOf(isolation: Isolation, warmCalls = 2000, options: SpawnOptions<[]> = {}): Promise<PeerHandle> {
  const peer = spawn(Peer, { isolation, ...options });
  await ready(peer, { timeoutMs: 60_000 });
  for (let i = 0; i < warmCalls; i++) await peer.noop();
  return peer;
}
