// The sign of life of a node: from the agent's monitor thread, over a connection of its own, so that neither a busy loop nor a long queue of
// messages holds it up. A process that is stopped or gone gives none.

import type { SharedMemoryAddress } from '../../kernels/host.ts';
import type { ToHead } from '../control/index.ts';
import type { TlsFiles } from '../links/index.ts';
import { Channel, connect, HEAD } from '../wire/index.ts';
import { LeaseCell } from './lease-cell.ts';

/** Where the head is: a folder of this host, or its door. */
export type HeadPlace = { folder: string } | { url: string; tls: TlsFiles | undefined };

/** What the thread needs to know. */
export interface HeartbeatOrder {
  head: HeadPlace;
  token: Uint8Array;
  node: string;
  pid: number;
  processStart: string;
  everyMs: number;
  /** The agent's own loop counts this up several times between two signs of life. */
  ticks: SharedArrayBuffer;
  /** Moved on with every answer of the head. */
  lease?: SharedMemoryAddress;
}

/** Does not end: the thread goes with its process. */
export function startHeartbeat(order: HeartbeatOrder): void {
  const { head, node, pid, processStart, everyMs } = order;
  const token = Buffer.from(order.token);
  const ticks = new Int32Array(order.ticks);
  const lease = order.lease === undefined ? undefined : LeaseCell.open(order.lease);
  let channel: Channel | undefined;
  let connecting = false;
  let tick = Atomics.load(ticks, 0);
  let tickedAt = performance.now();
  const links = 'url' in head ? import('../links/index.ts') : undefined;
  links?.then(({ followEmulations }) => followEmulations());
  const reach = async (): Promise<void> => {
    const transport =
      'folder' in head ? await connect(head.folder, token, 0, HEAD) : await (await links!).connectHead(head.url, token, head.tls);
    if (lease !== undefined && 'onAnswered' in transport) transport.onAnswered((sentAt) => lease.renew(sentAt));
    const own = new Channel(HEAD, transport, {
      onMessage: () => {},
      onClose: () => {
        if (channel === own) channel = undefined;
      },
    });
    own.open();
    channel = own;
  };
  const beat = (): void => {
    const now = performance.now();
    const seen = Atomics.load(ticks, 0);
    if (seen !== tick) {
      tick = seen;
      tickedAt = now;
    }
    const message: ToHead = { t: 'beat', node, pid, processStart, blockedMs: Math.round(now - tickedAt) };
    if (channel !== undefined) channel.send([message]);
    else if (!connecting) {
      connecting = true;
      // A head that is away comes back, or the agent ends.
      reach()
        .then(() => channel?.send([message]))
        .catch(() => {})
        .finally(() => {
          connecting = false;
        });
    }
  };
  beat();
  setInterval(beat, everyMs);
}
