// Rows overhead.*: a call beside the bare channel that it travels on, a round trip of one small message, both in one run with the cores awake.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { judged, type SuiteContext } from '../rows.ts';
import { awake } from './awake.ts';
import { peerOf, withRuntime } from './run.ts';
import { each, median, round, SUITE } from './turns.ts';

const ECHO = fileURLToPath(new URL('./echo-main.js', import.meta.url));

interface Bare {
  name: string;
  roundTrip(): Promise<void>;
  close(): Promise<void>;
}

export async function overhead(context: SuiteContext, isolation: 'thread' | 'process'): Promise<void> {
  const bare = isolation === 'thread' ? await barePort() : await bareSocket();
  try {
    await withRuntime(async () => {
      const peer = await peerOf(isolation);
      for (let i = 0; i < 2000; i++) await bare.roundTrip();
      const ours: number[] = [];
      const channel: number[] = [];
      await awake(async () => {
        for (let turn = 0; turn < (context.quick ? 2 : 5); turn++) {
          ours.push((await each(2000, () => peer.noop())).median);
          channel.push((await each(2000, () => bare.roundTrip())).median);
        }
      });
      const [call, trip] = [median(ours), median(channel)];
      context.report(
        judged(
          {
            suite: SUITE,
            row: `overhead.${isolation}`,
            unit: 'x',
            ours: round(call / trip),
            details: { call_us: round(call), bare_us: round(trip), bare: bare.name, cores: 'awake' },
          },
          { most: 2 },
        ),
      );
    });
  } finally {
    await bare.close();
  }
}

async function barePort(): Promise<Bare> {
  const worker = new Worker(ECHO);
  await once(worker, 'online');
  let answered: () => void = () => {};
  worker.on('message', () => answered());
  return {
    name: 'MessagePort',
    roundTrip: () =>
      new Promise((done) => {
        answered = done;
        worker.postMessage('ping');
      }),
    close: async () => void (await worker.terminate()),
  };
}

async function bareSocket(): Promise<Bare> {
  const folder = mkdtempSync(join(tmpdir(), 'sfx-bench-'));
  const path = join(folder, 's');
  const server = createServer().listen(path);
  await once(server, 'listening');
  const child: ChildProcess = fork(ECHO, [path], { execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  const [socket] = (await once(server, 'connection')) as [Socket];
  let answered: () => void = () => {};
  socket.on('data', () => answered());
  socket.on('error', () => {});
  const message = Buffer.alloc(32, 1);
  return {
    name: 'UNIX socket',
    roundTrip: () =>
      new Promise((done) => {
        answered = done;
        socket.write(message);
      }),
    close: async () => {
      socket.destroy();
      server.close();
      if (child.exitCode === null) await once(child, 'exit');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
