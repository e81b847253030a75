// A Redis server for a test: a process of its own on a socket of a temporary folder's port, or the reason why there is none.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface RedisServer {
  url: string;
  skip?: string;
  /** Kills it, and starts another on the same port over what it had written. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export async function redisServer(): Promise<RedisServer> {
  if (spawnSync('redis-server', ['--version']).status !== 0)
    return {
      url: '',
      skip: 'redis-server is not installed (Debian: apt install redis-server)',
      restart: async () => {},
      stop: async () => {},
    };
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-redis-'));
  const port = await freePort();
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--appendonly', 'yes', '--save', '', '--daemonize', 'no'];
  const begin = async (): Promise<ChildProcess> => {
    const started = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] });
    await readyToAccept(started);
    return started;
  };
  let child = await begin();
  const end = async (): Promise<void> => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  return {
    url: `redis://127.0.0.1:${port}/0`,
    restart: async () => {
      await end();
      child = await begin();
    },
    stop: async () => {
      await end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

function readyToAccept(child: ChildProcess): Promise<void> {
  return new Promise((done, fail) => {
    let log = '';
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      log += text;
      if (/Ready to accept connections/.test(log)) done();
    });
    child.once('exit', (code) => fail(new Error(`redis-server ended with ${code}: ${log.slice(-500)}`)));
  });
}
