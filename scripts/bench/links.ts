// Suite `links`: calls and large values between two hosts (agents that share nothing, on this machine) beside Ray across two local nodes, and
// beside a raw socket of Node between two processes.
import { type ActorHandle, defineActor, injectFaults, ready, spawn, spread } from '../../runtime/index.ts';
import { withHosts } from './links/hosts.ts';
import { openRaw } from './links/raw.ts';
import type { Suite, SuiteContext } from './rows.ts';
import { compare, each, median, round, together } from './runtime/turns.ts';

const SUITE = 'links';
const GIGABYTE = 1_000_000_000;
const STORE_BYTES = 3 * 2 ** 30;
const CALLS = { sync: 300, async: 1000 };
/** How much better than Ray, and how much of the raw socket. */
const CALL_BAR = 4;
const OBJECT_BAR = 1.5;
const RAW_BAR = 0.6;
const MANY = { hosts: 8, bytes: 100_000_000, bytesPerSecond: 50_000_000, storeBytes: 2 ** 29, bar: 2.5 };
/** The links are slow for as long as that; the row takes a minute. */
const SLOW_MS = 600_000;

class EndActor {
  #value: Uint8Array | undefined;
  noop(): string {
    return 'ok';
  }
  /** Microseconds of a call to the other, median. */
  async calls(other: ActorHandle<EndActor>, n: number): Promise<number> {
    return (await each(n, () => other.noop())).median;
  }
  async flood(other: ActorHandle<EndActor>, n: number): Promise<number> {
    return together(n, () => other.noop());
  }
  /** GB/s until the other has seen the last byte of a value that it is given. */
  async give(other: ActorHandle<EndActor>, bytes: number): Promise<number> {
    this.#value = this.#value?.length === bytes ? this.#value : new Uint8Array(bytes).fill(1);
    const start = performance.now();
    if ((await other.last(this.#value)) !== 1) throw new Error('what came is not what was sent');
    return bytes / 1e6 / (performance.now() - start);
  }
  last(value: Uint8Array): number {
    return value.at(-1)!;
  }
}
export const End = defineActor(import.meta.url, 'End', EndActor);

async function withPair(
  tls: boolean,
  work: (a: ActorHandle<typeof End>, b: ActorHandle<typeof End>, certificates: Parameters<typeof openRaw>[0]) => Promise<void>,
) {
  await withHosts(2, { tls, storeBytes: STORE_BYTES }, async ({ nodes, tls: certificates }) => {
    const [a, b] = nodes.map((node) => spawn(End, { strategy: { node } }));
    await Promise.all([a!, b!].map((each) => ready(each, { timeoutMs: 60_000 })));
    await work(a!, b!, certificates);
  });
}

async function call(context: SuiteContext, how: 'sync' | 'async'): Promise<void> {
  await withPair(false, async (a, b) => {
    const turn = () => (how === 'sync' ? a.calls(b, CALLS.sync) : a.flood(b, CALLS.async));
    for (let i = 0; i < 5; i++) await turn();
    await compare(context, {
      suite: SUITE,
      row: `links.call.${how}`,
      unit: how === 'sync' ? 'us' : 'calls/s',
      better: how === 'sync' ? 'lower' : 'higher',
      turns: 7,
      ours: async () => await turn(),
      against: 'Ray hosts',
      peer: (ray) => ray.ask(`call_${how}`, { n: CALLS[how] }),
      bar: { ratio: CALL_BAR },
    });
  });
}

/** A value of 1 GB is an argument of a call to an actor of the other host. */
async function object(context: SuiteContext, tls: boolean): Promise<void> {
  await withPair(tls, async (a, b, certificates) => {
    const raw = await openRaw(certificates);
    const data = new Uint8Array(GIGABYTE).fill(1);
    const raws: number[] = [];
    const ours: number[] = [];
    const turn = async (): Promise<number> => {
      const rate = await a.give(b, GIGABYTE);
      raws.push(GIGABYTE / 1e9 / (await raw.send(data)));
      ours.push(rate);
      return rate;
    };
    try {
      await turn();
      raws.length = ours.length = 0;
      await compare(context, {
        suite: SUITE,
        row: `links.object.1gb${tls ? '.tls' : ''}`,
        unit: 'GB/s',
        better: 'higher',
        turns: 5,
        ours: turn,
        // Ray has no TLS for objects between nodes by default.
        ...(tls ? {} : { against: 'Ray hosts' as const, peer: (ray) => ray.ask('object', { size: GIGABYTE }), bar: { ratio: OBJECT_BAR } }),
      });
      const share = median(ours) / median(raws);
      context.report({
        suite: SUITE,
        row: `links.object.1gb${tls ? '.tls' : ''}.of_raw`,
        unit: tls ? 'of node:tls' : 'of node:net',
        ours: round(share),
        bar: `>= ${RAW_BAR}`,
        pass: share >= RAW_BAR,
        details: { raw_gb_per_s: round(median(raws)), ours_gb_per_s: round(median(ours)), turns: ours.length },
      });
    } finally {
      await raw.close();
    }
  });
}

/** A value to many hosts, beside the same to one, where every link carries little. */
async function many(context: SuiteContext): Promise<void> {
  await withHosts(MANY.hosts, { tls: false, storeBytes: MANY.storeBytes }, async ({ nodes }) => {
    const faults = await injectFaults({ faults: [] });
    const slow = { fault: 'links', at: 0, for: SLOW_MS, direction: 'out', bytesPerSecond: MANY.bytesPerSecond } as const;
    await faults.now({ ...slow, target: { driver: true } });
    for (const node of nodes) await faults.now({ ...slow, target: { node } });
    const value = new Uint8Array(MANY.bytes).fill(1);
    const seconds = async (to: string[]): Promise<number> => {
      const start = performance.now();
      const copies = await spread(value, to);
      const took = (performance.now() - start) / 1000;
      await copies.release();
      return took;
    };
    const toOne: number[] = [];
    const toAll: number[] = [];
    for (let turn = 0; turn < (context.quick ? 1 : 3); turn++) {
      toOne.push(await seconds(nodes.slice(0, 1)));
      toAll.push(await seconds(nodes));
    }
    const ratio = median(toAll) / median(toOne);
    context.report({
      suite: SUITE,
      row: 'links.many.100mb',
      unit: 'times one host',
      ours: round(ratio),
      bar: `<= ${MANY.bar}`,
      pass: ratio <= MANY.bar,
      details: { hosts: MANY.hosts, one_s: round(median(toOne)), all_s: round(median(toAll)), turns: toAll.length },
    });
    await faults.end({ timeoutMs: 0 });
  });
}

export const linksSuite: Suite = {
  'links.call.sync': (context) => call(context, 'sync'),
  'links.call.async': (context) => call(context, 'async'),
  'links.object.1gb': (context) => object(context, false),
  'links.object.1gb.tls': (context) => object(context, true),
  'links.many.100mb': many,
};
