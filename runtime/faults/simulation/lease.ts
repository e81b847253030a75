// The lease of a simulated host (node/lease-cell.ts), on that host's own clock, and its heartbeat (node/heartbeat.ts).
import { type Clock, LIVENESS, type ToHead } from '../../control/index.ts';
import { HOST_LEASE_MS, type Lease } from '../../node/lease-cell.ts';
import type { End } from './network.ts';
import type { Process } from './time.ts';
import type { World } from './world.ts';

export class VirtualLease implements Lease {
  readonly #clock: Clock;
  #until: number;
  epoch = 1;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#until = clock.now() + HOST_LEASE_MS;
  }

  leftMs(): number {
    return this.#until - this.#clock.now();
  }

  renew(sentAt: number): void {
    if (this.leftMs() <= 0) this.epoch++;
    this.#until = Math.max(this.#until, sentAt + HOST_LEASE_MS);
  }
}

/** What a heartbeat's connection carries beside: a word of the transport, answered by the other transport. */
export interface Ping {
  ping: number;
}

/** `agent`: the process that the thread says lives. */
export function startHeartbeat(world: World, thread: Process, agent: Process, clock: Clock, node: string, lease: VirtualLease): void {
  let end: End | undefined;
  const beat = (): void => {
    end ??= world.connectToHead(thread, {
      message: (message) => {
        if ('ping' in (message as Ping)) lease.renew((message as Ping).ping);
      },
      closed: () => {
        end = undefined;
      },
    });
    const message: ToHead = { t: 'beat', node, pid: agent.pid, processStart: agent.start, blockedMs: 0 };
    end?.send(message);
    end?.send({ ping: clock.now() } satisfies Ping);
    thread.after(LIVENESS.everyMs, beat);
  };
  beat();
}
