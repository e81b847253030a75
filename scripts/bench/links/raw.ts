// What a socket of Node carries between two processes: the measure for links.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { type Running, runCommand } from '../../cluster/processes.ts';

const MAIN = fileURLToPath(new URL(`./raw-main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));
/** As large as a piece of a block on a link. */
const PIECE = 256 * 1024;

export interface RawSocket {
  /** Seconds until the other process has said that it read all of it. */
  send(data: Uint8Array): Promise<number>;
  close(): Promise<void>;
}

export async function openRaw(tls: { ca: string; cert: string; key: string } | undefined): Promise<RawSocket> {
  const other: Running = runCommand(process.execPath, [...process.execArgv, MAIN, ...(tls === undefined ? [] : [tls.cert, tls.key])]);
  const port = (await other.said).port as number;
  const socket: Socket = tls === undefined ? connect(port, '127.0.0.1') : connectTls({ port, host: '127.0.0.1', ca: readFileSync(tls.ca) });
  await once(socket, tls === undefined ? 'connect' : 'secureConnect');
  return {
    async send(data) {
      const start = performance.now();
      const header = Buffer.alloc(8);
      header.writeBigUInt64LE(BigInt(data.length));
      const answered = once(socket, 'data');
      socket.write(header);
      for (let at = 0; at < data.length; at += PIECE)
        if (!socket.write(data.subarray(at, Math.min(data.length, at + PIECE)))) await once(socket, 'drain');
      await answered;
      return (performance.now() - start) / 1000;
    },
    async close() {
      socket.destroy();
      await other.stop();
    },
  };
}
