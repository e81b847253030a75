// What the suite `runtime` runs on: an actor that does nothing, answers what it got, or calls others.
import { type ActorHandle, defineActor } from '../../../runtime/index.ts';

class PeerActor {
  noop(): string {
    return 'ok';
  }
  pid(): number {
    return process.pid;
  }
  echo(x: Uint8Array): Uint8Array {
    return x;
  }
  first(x: Float32Array): number {
    return x[0]!;
  }
  sleep(ms: number): Promise<void> {
    return new Promise((done) => setTimeout(done, ms));
  }
  *items(n: number): Generator<string> {
    for (let i = 0; i < n; i++) yield 'ok';
  }
  /** n calls, dealt out to the others in turn. */
  async flood(others: ActorHandle<typeof Peer>[], n: number): Promise<void> {
    const calls = new Array<PromiseLike<unknown>>(n);
    for (let i = 0; i < n; i++) calls[i] = others[i % others.length]!.noop();
    await Promise.all(calls);
  }
}

export const Peer = defineActor(import.meta.url, 'Peer', PeerActor);
