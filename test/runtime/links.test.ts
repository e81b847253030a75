// Links between hosts: what breaks and heals loses and repeats nothing, nobody waits behind bulk, and garbage ends the link and nothing else.
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { Failures } from '../../runtime/links/failures.ts';
import { PACKET_HEADER, record, seal } from '../../runtime/links/packet.ts';
import { WINDOW } from '../../runtime/links/stream.ts';
import { until } from '../until.ts';
import { blockOf, linkEnds, Sink } from './link-world.ts';

const RUNS = { seed: 20261130, endOnFailure: true };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
t.test('a link that breaks and heals loses nothing and repeats nothing', async (t) => {
  let breaks = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ stream: fc.nat(2), kind: fc.nat(9), size: fc.nat(400_000), turns: fc.nat(6) }), { minLength: 1, maxLength: 40 }),
      fc.array(fc.nat(60), { maxLength: 6 }),
      async (script, cuts) => {
        const { dialer, arrived, pipe, ended } = linkEnds();
        const sent: Buffer[][] = [[], [], []];
        let opened = 0;
        const streams = [0, 1, 2].map((i) => dialer.open(i, 100 + i, 'carried', (admission) => (opened += admission === 0 ? 1 : 0)));
        const sinks = streams.map((stream) => new Sink(dialer, stream));
        let done = 0;
        let blocks = 0;
        const cutting = (async () => {
          for (const wait of cuts) {
            for (let i = 0; i < wait; i++) await turn();
            if (!dialer.up) continue;
            breaks++;
            pipe().destroy('reset');
          }
        })();
        for (const { stream, kind, size, turns } of script) {
          const content = randomBytes(kind < 6 ? size % 2000 : size + 1);
          if (content.length === 0) continue;
          sent[stream]!.push(content);
          if (kind < 8) streams[stream]!.write(content);
          else {
            blocks++;
            streams[stream]!.sendBlock(blockOf(content, () => done++));
          }
          for (let i = 0; i < turns; i++) await turn();
        }
        await cutting;
        const bytes = (list: Buffer[]): number => list.reduce((sum, each) => sum + each.length, 0);
        await until(
          `everything arrives: ${ended.join()}`,
          () => arrived.length === 3 && sent.every((list, i) => bytes(arrived[i]!.got) >= bytes(list)),
        );
        for (let i = 0; i < 3; i++)
          if (!Buffer.concat(arrived[i]!.got).equals(Buffer.concat(sent[i]!))) throw new Error(`stream ${i} is not what was sent`);
        await until('blocks are let go of', () => done === blocks);
        if (opened !== 3) throw new Error(`${opened} openings answered`);
        await until('it is up', () => dialer.up);
        dialer.close();
        await until('all is closed', () => sinks.every(({ closed }) => closed) && arrived.every(({ closed }) => closed));
      },
    ),
    { ...RUNS, numRuns: 60 },
  );
  t.ok(breaks > 50, `${breaks} breaks`);
});

t.test('one that does not heal within its lease is over, on both sides', async (t) => {
  const { dialer, acceptor, arrived, pipe, ended } = linkEnds({ leaseMs: 60, mayMeet: () => false });
  const sink = new Sink(
    dialer,
    dialer.open(1, 2, 'carried', () => {}),
  );
  await until('opened', () => arrived.length === 1);
  pipe().destroy('reset');
  await until('both end', () => ended.length === 2);
  t.ok(dialer.ended && acceptor.ended && sink.closed && arrived[0]!.closed);
  t.match(ended.join(), /did not heal within 60 ms/);
});

t.test('the newest pipe wins, and an end that has forgotten the session ends it', async (t) => {
  const one = linkEnds();
  const first = one.pipe();
  first.destroy('silent');
  await until('another pipe', () => one.dialer.up && one.pipe() !== first);
  t.equal(one.dialer.pipes, 2);
  t.ok(first.closed);
  one.acceptor.end('a test');
  await until('the other end as well', () => one.dialer.ended);
  t.match(one.ended.join(), /forgotten|protocol|ended/);
});

t.test('what is urgent and what is small does not wait behind bulk', async (t) => {
  const { dialer, arrived } = linkEnds();
  const bulk = dialer.open(1, 2, 'carried', () => {});
  const small = dialer.open(3, 4, 'carried', () => {});
  await until('opened', () => arrived.length === 2);
  const large = Buffer.alloc(64 * 2 ** 20, 1);
  bulk.sendBlock(blockOf(large));
  t.notOk(bulk.write(Buffer.alloc(10)), 'enough is waiting there');
  small.write(Buffer.from('small'));
  await until('the small one', () => arrived[1]!.got.length > 0);
  t.equal(arrived[0]!.got.length, 0, 'before the large one');
  await until('the large one', () => arrived[0]!.got.length === 2);
  t.ok(arrived[0]!.got[0]!.equals(large));
  dialer.close();
});

t.test('a reader that does not read stops its own stream only', async (t) => {
  const { dialer, arrived } = linkEnds();
  const slow = dialer.open(1, 2, 'carried', () => {});
  const quick = dialer.open(3, 4, 'carried', () => {});
  await until('opened', () => arrived.length === 2);
  arrived[0]!.onBytes = (chunk) => void arrived[0]!.got.push(Buffer.from(chunk)); // and says nothing
  for (let i = 0; i < 40; i++) slow.write(Buffer.alloc(1024 * 1024, i));
  for (let i = 0; i < 40; i++) quick.write(Buffer.alloc(1024 * 1024, i));
  const bytes = (sink: Sink): number => sink.got.reduce((sum, { length }) => sum + length, 0);
  await until('the quick one', () => bytes(arrived[1]!) === 40 * 2 ** 20);
  t.equal(bytes(arrived[0]!), WINDOW, 'the slow one has its window, and no more');
  dialer.close();
});

t.test('whatever is lost, doubled or changed on the way, what arrives is what was sent', async (t) => {
  const noticed = new Set<number>();
  for (let seed = 0; seed < 100; seed++) {
    const dice = fc.sample(fc.array(fc.nat(255), { minLength: 64, maxLength: 64 }), { seed, numRuns: 1 })[0]!;
    const kind = seed % 5;
    let messages = 0;
    const change = (data: Buffer): Buffer[] => {
      const where = dice[++messages % 64]!;
      if (messages > 60 || dice[(messages * 7) % 64]! % 4 > 0) return [data];
      noticed.add(kind);
      if (kind === 0) return [];
      if (kind === 1) return [data, data];
      if (kind === 2) return [data.subarray(0, where % data.length)];
      if (kind === 3) return [Buffer.from(dice)];
      const bad = Buffer.from(data);
      bad[where % bad.length]! ^= 1 << (where % 8);
      return [bad];
    };
    const { dialer, arrived, pipe } = linkEnds({ change });
    const stream = dialer.open(1, 2, 'carried', () => {});
    new Sink(dialer, stream);
    const sent: Buffer[] = [];
    for (let i = 0; i < 24; i++) {
      const content = randomBytes(1 + ((dice[i]! * dice[i + 1]!) % 3000));
      sent.push(content);
      if (i % 3 === 2) stream.sendBlock(blockOf(content));
      else stream.write(content);
      await turn();
    }
    const all = Buffer.concat(sent);
    for (let turns = 0; (arrived[0]?.got.reduce((sum, { length }) => sum + length, 0) ?? 0) < all.length; turns++) {
      if (turns > 20_000) throw new Error(`seed ${seed}: not all of it`);
      await turn();
      // Nothing follows what was lost last: in a real pipe the next ping tells.
      if (turns % 50 === 49) pipe().destroy('damaged');
    }
    if (!Buffer.concat(arrived[0]!.got).equals(all)) throw new Error(`seed ${seed}: something else`);
    dialer.close();
  }
  t.equal(noticed.size, 5);
});

t.test('a pipe that damages everything heals nothing: the lease goes on', async (t) => {
  let spoiled = false;
  const one = linkEnds({ leaseMs: 80, change: (data) => [spoiled ? data.subarray(1) : data] });
  const sink = new Sink(
    one.dialer,
    one.dialer.open(1, 2, 'carried', () => {}),
  );
  await until('opened', () => one.arrived.length === 1);
  spoiled = true;
  one.pipe().destroy('damaged');
  await until('both end', () => one.ended.length === 2);
  t.ok(sink.closed);
});

t.test('nonsense of one that has proved itself: a typed error, the end of the link, nothing else', async (t) => {
  let noticed = 0;
  for (let seed = 0; seed < 400; seed++) {
    const { dialer, acceptor, pipe } = linkEnds({ leaseMs: 50, mayMeet: () => false });
    const stream = dialer.open(1, 2, 'carried', () => {});
    new Sink(dialer, stream);
    await turn();
    const [kind, id, bytes, raw, acknowledged, ...content] = fc.sample(fc.array(fc.nat(255), { minLength: 64, maxLength: 64 }), {
      seed,
      numRuns: 1,
    })[0]! as [number, number, number, number, number];
    const near = pipe();
    near.change = (data) => {
      // A record of any kind, for any stream, well sealed.
      const packet = Buffer.concat([Buffer.alloc(PACKET_HEADER + 12), Buffer.from(content).subarray(0, bytes % 20)]);
      packet.writeUInt32LE(kind % (Object.keys(record).length + 3), PACKET_HEADER);
      packet.writeUInt32LE(id % 4, PACKET_HEADER + 4);
      packet.writeUInt32LE(bytes % 16, PACKET_HEADER + 8);
      const piece = raw % 4 === 0 ? Buffer.from(content) : undefined;
      seal(packet, data.readUInt32LE(0), acknowledged % 8 === 0 ? acknowledged : data.readUInt32LE(4), piece);
      return piece === undefined ? [packet] : [packet, piece];
    };
    for (let i = 0; i < 4; i++) {
      stream.write(Buffer.from([i]));
      await turn();
    }
    await turn();
    const errors = [...near.errors, ...near.other.errors] as (Error & { code?: string })[];
    for (const { code, stack } of errors) if (code !== 'SINKFLEX_PROTOCOL') throw new Error(`seed ${seed}: ${stack}`);
    if (errors.length > 0 && !(acceptor.ended || dialer.ended)) throw new Error(`seed ${seed}: the link goes on`);
    if (errors.length > 0) noticed++;
    dialer.end('over');
    acceptor.end('over');
  }
  t.ok(noticed > 150, `${noticed} were noticed, the others had no effect`);
});

t.test('an address that fails has to wait, longer each time', (t) => {
  let now = 0;
  const failures = new Failures({ free: 2, firstWaitMs: 100, longestWaitMs: 1000 }, () => now);
  const waits: number[] = [];
  for (let i = 0; i < 8; i++) {
    failures.failed('a');
    const from = now;
    while (failures.blocked('a')) now += 50;
    waits.push(now - from);
  }
  t.same(waits, [0, 0, 100, 200, 400, 800, 1000, 1000]);
  t.notOk(failures.blocked('b'));
  failures.succeeded('a');
  failures.failed('a');
  t.notOk(failures.blocked('a'), 'forgiven');
  for (let i = 0; i < 5000; i++) failures.failed(`x${i}`);
  t.notOk(failures.blocked('a'), 'and forgotten');
  t.end();
});
