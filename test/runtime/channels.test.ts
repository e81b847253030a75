// Channels between real workers: one for each pair, closed when nobody uses them, opened again with everything in order; ports between
// threads of a process.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import t from 'tap';
import type { ActorSpec } from '../../runtime/control/index.ts';
import { Channel, LocalNetwork, MainBroker, type Transport } from '../../runtime/wire/index.ts';
import { ActorHost, enter, Session } from '../../runtime/worker/index.ts';
import { until } from '../until.ts';

const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
t.teardown(() => rmSync(folder, { recursive: true }));
const token = Buffer.alloc(32, 7);

class Echo {
  readonly #log: number[] = [];
  echo(value: unknown): unknown {
    return value;
  }
  note(n: number): number {
    return this.#log.push(n);
  }
  log(): number[] {
    return this.#log;
  }
}

/** Two sessions of this thread over real sockets or ports, the second with an actor that the first may call. */
async function pair(
  first: number,
  options: { idleMs?: number; ports?: boolean },
): Promise<{ caller: Session; callee: Session; host: ActorHost }> {
  const open = async (worker: number): Promise<Session> => {
    const session: Session = new Session(
      { worker, folder, token, maxInFlightBytes: 2 ** 30 },
      {
        send(message) {
          if (message.t !== 'resolve') return;
          const place = { actor: 1, status: 'alive', incarnation: 1, worker: first + 1, name: 'echo', failed: false, restarts: 0 } as const;
          setImmediate(() => session.onAgent({ t: 'place', place: { ...place, window: 100, maxPending: 99, onFull: 'wait' } }));
        },
      },
      {
        several: true,
        ...(options.idleMs === undefined ? {} : { idleMs: options.idleMs }),
        ...(options.ports ? { broker: new MainBroker(worker) } : {}),
      },
    );
    await session.open();
    return session;
  };
  const caller = await open(first);
  const callee = await open(first + 1);
  const spec = { actor: 1, name: 'echo', methods: ['echo', 'note', 'log'], maxConcurrency: 1, maxPending: 99, concurrencyGroups: {} };
  const host = new ActorHost(spec as unknown as ActorSpec, 1, []);
  callee.hosts.set(1, host);
  await host.start(Echo, []);
  enter(caller);
  return { caller, callee, host };
}

const count = (session: Session): number => [...session.connections()].length;

for (const ports of [false, true]) {
  t.test(`${ports ? 'ports' : 'sockets'}: closed when idle on both sides, open again on the next call, in order`, async (t) => {
    const { caller, callee } = await pair(ports ? 200 : 100, { idleMs: 20, ports });
    t.teardown(() => {
      caller.close();
      callee.close();
    });
    const echo = caller.client(1, 'echo');
    let n = 0;
    for (let round = 0; round < 5; round++) {
      const notes = Array.from({ length: 20 }, () => echo.call('note', [++n], undefined));
      t.same((await Promise.all(notes)).at(-1), n);
      await until('channels are closed', () => count(caller) === 0 && count(callee) === 0);
    }
    t.same(
      await echo.call('log', [], undefined),
      Array.from({ length: n }, (_, i) => i + 1),
    );
    const array = Float64Array.from({ length: 40_000 }, (_, i) => i);
    const back = (await echo.call('echo', [{ array, small: Uint8Array.of(1, 2, 3) }], undefined)) as {
      array: Float64Array;
      small: Uint8Array;
    };
    t.equal(back.array[39_999], 39_999);
    t.same(back.small, Uint8Array.of(1, 2, 3));
    t.equal(array[39_999], 39_999, 'what was sent is still there');
    t.equal(count(caller), 1);
  });
}

t.test('two that open at the same moment end up with one channel', async (t) => {
  for (let round = 0; round < 10; round++) {
    const { caller, callee } = await pair(300 + round * 2, { ports: round % 2 === 1 });
    const [a, b] = await Promise.all([caller.connectionTo(callee.worker), callee.connectionTo(caller.worker)]);
    t.equal(count(caller), 1);
    t.equal(count(callee), 1);
    t.notOk(a.closed || b.closed);
    caller.close();
    callee.close();
  }
});

t.test('a frame handed over with wrong sizes closes the channel', async (t) => {
  const broker = {
    async port() {
      const { port1, port2 } = new MessageChannel();
      port2.once('message', () => {});
      port1.unref();
      port2.postMessage('yes');
      port2.postMessage([new Uint8Array(20), new Uint8Array(3)]);
      return port1;
    },
    accept: () => () => {},
  };
  const transport = (await new LocalNetwork(folder, token, 1, broker).connect(2)) as Transport;
  const error = await new Promise<Error | undefined>((resolve) => {
    new Channel(2, transport, { onMessage() {}, onClose: (_, cause) => resolve(cause) }).open();
  });
  t.match(error, { code: 'SINKFLEX_PROTOCOL' });
});
