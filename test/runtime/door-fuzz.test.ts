// The door under fuzz: random, truncated, oversized and mutated frames, before the proof and after it. Strangers get nothing but a close, peers
// that speak nonsense are cut off, memory stays where it was, and the door goes on. SINKFLEX_DOOR_FRAMES: how many (2,000); SINKFLEX_FUZZ_SEED.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { pack } from 'msgpackr';
import t from 'tap';
import { nextState, unitOf } from '../../runtime/control/index.ts';
import { startHead } from '../../runtime/head/index.ts';
import { Door, dialDoor, findToken, Gateway, type Pipe, type Room } from '../../runtime/links/index.ts';
import { writeHello } from '../../runtime/links/meeting.ts';
import { PACKET_HEADER, seal } from '../../runtime/links/packet.ts';
import { holdings } from './fixtures/processes.ts';
import { specOf } from './head-world.ts';

const frames = Number(process.env.SINKFLEX_DOOR_FRAMES ?? 2000);
const seed = Number(process.env.SINKFLEX_FUZZ_SEED ?? 1);
/** Of one connection: what follows a bad one is written, and must not be read. */
const BURST = 20;
/** Connections at a time. */
const TOGETHER = 8;
const END_MS = 30_000;
t.setTimeout(60_000 + frames * 20);

// Each peer that is cut off is a line.
const { write } = process.stderr;
process.stderr.write = ((text: string, ...rest: []) =>
  String(text).startsWith('[sinkflex]') ? true : write.call(process.stderr, text, ...rest)) as typeof write;

class Dice {
  #state = seed;
  unit(): number {
    this.#state = nextState(this.#state);
    return unitOf(this.#state);
  }
  below(n: number): number {
    return Math.floor(this.unit() * n);
  }
  bytes(n: number): Buffer {
    return Buffer.from(Array.from({ length: n }, () => this.below(256)));
  }
  pick<T>(of: readonly T[]): T {
    return of[this.below(of.length)]!;
  }
  /** The same with a few bits flipped, cut short, longer, or a length in it that is enormous. */
  mutate(data: Buffer): Buffer {
    const bad = Buffer.from(data);
    const kind = this.below(5);
    if (kind === 0) return bad.subarray(0, this.below(bad.length + 1));
    if (kind === 1) return Buffer.concat([bad, this.bytes(this.below(64))]);
    if (kind === 2 && bad.length >= 4) bad.writeUInt32LE(this.pick([0xffffffff, 0x7fffffff, 0x10000000, 0]), this.below(bad.length - 3));
    else if (bad.length > 0) for (let i = 1 + this.below(4); i > 0; i--) bad[this.below(bad.length)]! ^= 1 << this.below(8);
    return bad;
  }
}
const dice = new Dice();

const base = mkdtempSync(join(tmpdir(), 'sf-fuzz-'));
const head = await startHead(join(base, 'c'), { listen: '127.0.0.1:0' });
const token = findToken(join(head.folder, 'token'));
const patient = { free: 1e9, firstWaitMs: 0, longestWaitMs: 0 };
const gateway = new Gateway({
  folder: base,
  socket: join(base, 'g'),
  token,
  store: undefined,
  tls: undefined,
  route: () => Promise.reject(new Error()),
});
let entered = 0;
const door = await Door.open({
  listen: { host: '127.0.0.1', port: 0 },
  token,
  failures: patient,
  rooms: {
    head: () => entered++,
    link: (pipe) => {
      entered++;
      void gateway.accept(pipe);
    },
  },
});
t.teardown(async () => {
  gateway.close();
  door.close();
  await head.close(1000);
  rmSync(base, { recursive: true, force: true });
});

/** A frame of a WebSocket, masked with zeros. `length`: what it says of itself. */
function webSocketFrame(content: Buffer, first = 0x82, length = content.length): Buffer {
  const header = Buffer.alloc(length < 126 ? 6 : length < 65_536 ? 8 : 14);
  header[0] = first;
  if (length < 126) header[1] = 0x80 | length;
  else if (length < 65_536) {
    header[1] = 0x80 | 126;
    header.writeUInt16BE(length, 2);
  } else {
    header[1] = 0x80 | 127;
    header.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([header, content]);
}

async function closed(socket: Socket): Promise<void> {
  if (socket.destroyed) return;
  await once(socket, 'close', { signal: AbortSignal.timeout(END_MS) });
}

/** So many at a time, until that many frames were written. */
async function each(count: number, one: () => Promise<void>): Promise<void> {
  let left = Math.ceil(count / BURST);
  await Promise.all(
    Array.from({ length: TOGETHER }, async () => {
      while (left-- > 0) await one();
    }),
  );
}

t.test('before the proof', async (t) => {
  const before = await holdings();
  const upgrade = `GET /head HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`;
  const greeting = Buffer.alloc(24);
  greeting.write('SFXA');
  let most = 0;
  await each(frames / 2, async () => {
    const socket = connect(Number(new URL(door.url).port), '127.0.0.1');
    let text = '';
    socket.on('data', (chunk) => (text += chunk.toString('latin1')));
    socket.on('error', () => {});
    await once(socket, 'connect');
    const asked = dice.below(20) === 0 ? dice.mutate(Buffer.from(upgrade)) : Buffer.from(upgrade);
    const sent = Array.from({ length: BURST }, () => {
      const content = dice.pick([dice.bytes(dice.below(80)), dice.mutate(greeting), greeting, Buffer.alloc(dice.below(2000))]);
      const enormous = dice.below(8) === 0 ? dice.pick([2 ** 20 + 1, 2 ** 31, 2 ** 40, 2 ** 52]) : content.length;
      return webSocketFrame(content, dice.below(4) === 0 ? dice.below(256) : 0x82, enormous);
    });
    socket.write(Buffer.concat([asked, ...sent]));
    // Who says too little to be refused goes.
    if (dice.below(2) === 0) socket.end();
    else setTimeout(() => socket.destroy(), 300).unref();
    await closed(socket);
    const said = text.slice(text.indexOf('\r\n\r\n') + 4);
    if (text.startsWith('HTTP/1.1 101')) most = Math.max(most, said.length);
  });
  // The listener's half of a proof (2 + 48 bytes), and a closing frame.
  t.ok(most <= 50 + 4, `${most} bytes at most`);
  t.equal(entered, 0, 'nobody got in');
  const pipe = await reach(door.url, 'head');
  t.equal(entered, 1, 'but for who knows the token');
  pipe.destroy();
  const { heapMiB } = await holdings();
  t.ok(heapMiB < before.heapMiB + 32, `${before.heapMiB.toFixed(0)} MiB, then ${heapMiB.toFixed(0)}`);
});

const encoded = (message: unknown): Buffer => {
  const content = pack(message);
  const prefix = Buffer.alloc(16);
  prefix.writeUInt32LE(0x31584653, 0);
  prefix.writeUInt32LE(content.length, 4);
  prefix.writeUInt32LE(1, 12);
  return Buffer.concat([prefix, content]);
};
const words = [
  { t: 'beat', node: 'n', pid: 1, processStart: 'x', blockedMs: 0 },
  { t: 'spawn', spec: specOf(7) },
  { t: 'ask', worker: 1, request: 1, ask: { q: 'nodes' } },
  { t: 'died', actor: 1, incarnation: 1, end: { lastStderr: [], constructorFailed: false } },
  { t: 'attach', driver: 'd', pid: 1, processStart: 'x' },
].map((word) => encoded([word]));

/** As PipeTransport seals its messages. */
function sealed(number: number, content: Buffer): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt32LE(number, 0);
  header.writeUInt32LE(crc32(content, crc32(header.subarray(0, 4))), 4);
  return Buffer.concat([header, content]);
}

/** A busy machine does not always answer within the two seconds of a handshake. */
async function reach(url: string, room: Room): Promise<Pipe> {
  for (const end = Date.now() + END_MS; ; ) {
    try {
      return await dialDoor(url, room, token, undefined);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}

function open(pipe: Pipe): Promise<void> {
  return new Promise((resolve) =>
    pipe.open(
      () => {},
      () => resolve(),
    ),
  );
}

t.test('after the proof: words to a head', async (t) => {
  const before = await holdings();
  await each(frames / 4, async () => {
    const pipe = await reach(head.url!, 'head');
    const over = open(pipe);
    for (let i = 1; i <= BURST; i++) {
      const content = dice.pick([dice.bytes(dice.below(200)), dice.mutate(dice.pick(words)), dice.mutate(dice.pick(words))]);
      pipe.send(dice.below(10) === 0 ? dice.mutate(sealed(i, content)) : sealed(i, content));
    }
    // One more that is no frame, whatever the others were.
    pipe.send(Buffer.alloc(4));
    await over;
  });
  const again = await reach(head.url!, 'head');
  again.close();
  t.notOk(head.head.closing, 'it goes on');
  const { heapMiB } = await holdings();
  t.ok(heapMiB < before.heapMiB + 32, `${before.heapMiB.toFixed(0)} MiB, then ${heapMiB.toFixed(0)}`);
});

t.test('after the proof: packets on a link', async (t) => {
  const before = await holdings();
  await each(frames / 4, async () => {
    const pipe = await reach(door.url, 'link');
    const over = open(pipe);
    const hello = writeHello({ from: 'a', host: 'a', to: gateway.host, session: `s${dice.below(2 ** 31)}`, fresh: true, received: 0 });
    pipe.send(dice.below(10) === 0 ? dice.mutate(hello) : hello);
    for (let i = 1; i <= BURST; i++) {
      const packet = Buffer.concat([Buffer.alloc(PACKET_HEADER + 12), dice.bytes(dice.below(40))]);
      packet.writeUInt32LE(dice.below(10), PACKET_HEADER);
      packet.writeUInt32LE(dice.below(4), PACKET_HEADER + 4);
      packet.writeUInt32LE(dice.pick([packet.length - PACKET_HEADER - 12, dice.below(64), 0xffffffff]), PACKET_HEADER + 8);
      const raw = dice.below(4) === 0 ? dice.bytes(dice.below(64) + 1) : undefined;
      seal(packet, i, dice.below(20) === 0 ? 1 : 0, raw);
      pipe.send(dice.below(8) === 0 ? dice.mutate(packet) : packet);
      if (raw !== undefined) pipe.send(raw);
    }
    pipe.send(Buffer.alloc(4));
    await over;
  });
  const links = [...gateway.links()];
  for (const link of links) link.end('the test is over');
  const { heapMiB } = await holdings();
  t.ok(heapMiB < before.heapMiB + 32, `${before.heapMiB.toFixed(0)} MiB, then ${heapMiB.toFixed(0)}`);
});
