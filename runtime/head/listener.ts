// Where agents and drivers of other processes reach the head: a local socket in the cluster's folder, and a door for other hosts if wanted;
// both behind the cluster's token.
import type { PeerLink, ToHead } from '../control/index.ts';
import { Door, type DoorOptions, PipeTransport } from '../links/index.ts';
import { Channel, HEAD, type Listener, listen, type Transport } from '../wire/index.ts';
import { checkMessage } from './check-message.ts';
import type { Head } from './head.ts';

/** Control messages of others are small, but for constructor arguments and checkpoints. */
const LIMITS = { messageBytes: 256 * 2 ** 20, sectionBytes: 2 ** 30 };

class Peers {
  readonly #head: Head;
  readonly #channels = new Set<Channel>();

  constructor(head: Head) {
    this.#head = head;
  }

  arrived(caller: number, transport: Transport, remote: boolean): void {
    const head = this.#head;
    const channel: Channel = new Channel(
      caller,
      transport,
      {
        onMessage(_, [message]) {
          if (remote) checkMessage(message);
          head.receive(message as ToHead, link);
        },
        onClose: (_, error) => {
          this.#channels.delete(channel);
          if (error !== undefined) process.stderr.write(`[sinkflex] a peer was cut off: ${error.message}\n`);
          head.disconnected(link, transport instanceof PipeTransport && (transport.end === 'end' || transport.end === 'reset'));
        },
      },
      remote ? LIMITS : undefined,
    );
    const link: PeerLink = { remote, send: (message) => void channel.send([message]), close: () => channel.close() };
    this.#channels.add(channel);
    channel.open();
  }

  close(): void {
    for (const channel of this.#channels) channel.close();
  }
}

export async function listenForPeers(head: Head, folder: string, token: Buffer): Promise<Listener> {
  const peers = new Peers(head);
  const listener = await listen(folder, token, HEAD, (caller, transport) => peers.arrived(caller, transport, false));
  return {
    close() {
      peers.close();
      listener.close();
    },
  };
}

/** For other hosts. */
export async function openDoor(head: Head, options: Omit<DoorOptions, 'rooms'>): Promise<Listener & { url: string }> {
  const peers = new Peers(head);
  const door = await Door.open({ ...options, rooms: { head: (pipe) => peers.arrived(0, new PipeTransport(pipe), true) } });
  return {
    url: door.url,
    close() {
      peers.close();
      door.close();
    },
  };
}
