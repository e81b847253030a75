// Where agents and drivers of other processes reach the head: a local socket in the cluster's folder, behind its token.
import type { PeerLink, ToHead } from '../control/index.ts';
import { Channel, HEAD, type Listener, listen, type Transport } from '../wire/index.ts';
import type { Head } from './head.ts';

export async function listenForPeers(head: Head, folder: string, token: Buffer): Promise<Listener> {
  const channels = new Set<Channel>();
  const listener = await listen(folder, token, HEAD, (caller: number, transport: Transport) => {
    const channel: Channel = new Channel(caller, transport, {
      onMessage: (_, [message]) => head.receive(message as ToHead, link),
      onClose: (_, error) => {
        channels.delete(channel);
        if (error !== undefined) process.stderr.write(`[sinkflex] a peer was cut off: ${error.message}\n`);
        head.disconnected(link);
      },
    });
    const link: PeerLink = { send: (message) => void channel.send([message]) };
    channels.add(channel);
    channel.open();
  });
  return {
    close() {
      for (const channel of channels) channel.close();
      listener.close();
    },
  };
}
