// What a spare worker does with its time: one exchange with itself over a socket of its own. Everything that a first call needs has then
// been loaded, compiled and run once.
import { randomBytes } from 'node:crypto';
import { isMainThread, threadId } from 'node:worker_threads';
import { Channel, type ChannelHandler, connect, listen } from '../wire/index.ts';

/** Beyond the numbers of workers; pids are below 2^22. */
const FIRST_PROCESS = 4_000_000_000;
const FIRST_THREAD = 4_100_000_000;
const ROUNDS = 8;
const GIVE_UP_MS = 2000;

export async function rehearse(folder: string): Promise<void> {
  const token = randomBytes(32);
  const self = isMainThread ? FIRST_PROCESS + process.pid : FIRST_THREAD + threadId;
  const channels: Channel[] = [];
  const echo: ChannelHandler = {
    onMessage: (channel, message) => channel.send([1, 1, message[5]]),
    onClose: () => {},
  };
  const listener = await listen(folder, token, self, (caller, transport) => {
    const channel = new Channel(caller, transport, echo);
    channels.push(channel);
    channel.open();
  });
  try {
    const transport = await connect(folder, token, self + 1, self);
    await new Promise<void>((resolve) => {
      let rounds = 0;
      const timer = setTimeout(resolve, GIVE_UP_MS);
      const channel = new Channel(self, transport, {
        onMessage: () => {
          if (++rounds < ROUNDS) channel.send([0, rounds, 1, 1, 'method', [rounds, 'text', { a: 1, b: [2] }, new Float32Array(4)], 0, 0]);
          else {
            clearTimeout(timer);
            resolve();
          }
        },
        onClose: () => resolve(),
      });
      channels.push(channel);
      channel.open();
      channel.send([0, 0, 1, 1, 'method', [], 0, 0]);
    });
  } finally {
    for (const channel of channels) channel.close();
    listener.close();
  }
}
