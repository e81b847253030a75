// The other end of a raw socket: reads everything that comes, and answers each announced number of bytes with one. `raw-main <cert> <key>` for TLS.
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';

const [, , cert, key] = process.argv;
const serve = (socket: Socket): void => {
  let wanted = 0;
  let header = Buffer.alloc(0);
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => {
    let data = chunk;
    while (data.length > 0) {
      if (wanted === 0) {
        header = Buffer.concat([header, data]);
        if (header.length < 8) return;
        wanted = Number(header.readBigUInt64LE(0));
        data = header.subarray(8);
        header = Buffer.alloc(0);
      }
      const take = Math.min(wanted, data.length);
      wanted -= take;
      data = data.subarray(take);
      if (wanted === 0) socket.write(Buffer.from([1]));
    }
  });
};
const server = cert === undefined ? createServer(serve) : createTlsServer({ cert: readFileSync(cert), key: readFileSync(key!) }, serve);
server.listen(0, '127.0.0.1', () => process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`));
process.stdin.on('end', () => process.exit()).resume();
