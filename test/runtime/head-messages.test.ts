// Messages of a head and its peers: delivered twice they have the effect of once; a head that is made again from its journal, cut anywhere,
// agrees with its nodes again; and what was reserved is free in the end.
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { definitionOf } from '../../runtime/api/definition.ts';
import type { Ask, FromAgent, PeerLink } from '../../runtime/control/index.ts';
import { Head, HeadState, Journal } from '../../runtime/head/index.ts';
import type { ActorInfo } from '../../runtime/index.ts';
import { Agent, makeRunFolder } from '../../runtime/node/index.ts';
import { encodeAlone } from '../../runtime/wire/index.ts';
import { Counter } from './fixtures/actors.ts';
import { MadeNode, Peer, quiet, specOf } from './head-world.ts';

const step = fc.record({
  what: fc.constantFrom(
    'spawn',
    'spawn',
    'spawn',
    'die',
    'kill',
    'restart',
    'group',
    'remove',
    'rejoin',
    'name',
    'lease',
    'lease',
    'return',
  ),
  which: fc.nat(7),
  cpus: fc.constantFrom(0, 0.5, 1, 2),
  maxRestarts: fc.nat(2),
});
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

interface World {
  head: Head;
  driver: Peer;
  nodes: MadeNode[];
  requests: number;
  spawned: number[];
  /** Requests that asked for a lease; the lease is named after it. */
  leases: number[];
}

const makeWorld = (head: Head, copies: number): World => {
  const nodes = ['a', 'b'].map((node) => new MadeNode(head, node, 3, copies));
  const driver = new Peer(head, copies);
  driver.say({ t: 'attach', driver: 'd', pid: 1, processStart: 'd' });
  for (const node of nodes) node.join();
  return { head, driver, nodes, requests: 0, spawned: [], leases: [] };
};

function perform(world: World, { what, which, cpus, maxRestarts }: Step): void {
  const { driver, nodes, spawned } = world;
  const actor = spawned[which % Math.max(1, spawned.length)];
  const host = nodes.find((node) => actor !== undefined && node.hosted.has(actor));
  const request = ++world.requests;
  switch (what) {
    case 'spawn':
    case 'name': {
      const id = 2 ** 24 + spawned.length + 1;
      spawned.push(id);
      const named = what === 'name' ? { name: 'shared name', getIfExists: which % 2 === 0 } : {};
      driver.say({
        t: 'spawn',
        spec: specOf(id, { request: { resources: { cpus }, labels: {}, strategy: 'hybrid' }, maxRestarts, ...named }),
      });
      driver.say({ t: 'resolve', actor: id });
      return;
    }
    case 'die':
      if (host !== undefined) host.end(actor!);
      return;
    case 'kill':
    case 'restart':
      if (actor !== undefined) driver.say({ t: 'kill', actor, restart: what === 'restart', drain: false, graceMs: 0, worker: 1, request });
      return;
    case 'group':
      driver.say({
        t: 'ask',
        worker: 1,
        request,
        ask: {
          q: 'group-create',
          group: `g${which}`,
          bundles: [{ resources: { cpus: 1 } }],
          strategy: 'PACK',
          lifetime: 'owned',
          owner: 'driver/1',
        },
      });
      return;
    case 'remove':
      driver.say({ t: 'ask', worker: 1, request, ask: { q: 'group-remove', group: `g${which}` } });
      return;
    case 'lease':
      world.leases.push(request);
      driver.say({ t: 'ask', worker: 1, request, ask: askLease(`l${request}`, cpus) });
      return;
    case 'return': {
      const lease = world.leases[which % Math.max(1, world.leases.length)];
      if (lease !== undefined) driver.say({ t: 'ask', worker: 1, request, ask: { q: 'lease-return', lease: `l${lease}` } });
      return;
    }
    case 'rejoin': {
      const node = nodes[which % nodes.length]!;
      world.head.disconnected(node);
      if (actor !== undefined && node.hosted.has(actor)) node.end(actor, true);
      node.join();
      return;
    }
  }
}

const askLease = (lease: string, cpus: number): Ask => ({
  q: 'lease',
  lease,
  request: { resources: { cpus }, labels: {}, strategy: 'hybrid' },
  owner: 'driver/1',
});

/** What the head said to the request, each answer once. */
const answersTo = (driver: Peer, request: number): string[] => [
  ...new Set(
    driver.heard.flatMap((message) => {
      if (message.t !== 'answer' || message.request !== request) return [];
      return [message.error === undefined ? JSON.stringify(message.value) : `failed: ${message.error[0]}`];
    }),
  ),
];

const summary = ({ head, driver, nodes, spawned, leases }: World): unknown => ({
  actors: head.list().map(({ id, state, incarnation, restarts, node }) => [id, state, incarnation, restarts, node]),
  dead: spawned.filter((id) => head.state.actors.get(id)?.dead),
  starts: nodes.map((node) => node.starts),
  hosted: nodes.map((node) => [...node.hosted.keys()].sort()),
  bundles: nodes.map((node) => [...node.bundles.keys()].sort()),
  nodes: [...head.state.cluster.nodes()],
  held: [...head.state.cluster.leases()],
  // A lease that has gone since is refused to whoever asks again: what counts is what was said first.
  leased: leases.map((request) => answersTo(driver, request)[0]),
});

/** What must hold whenever nothing is under way: head and nodes mean the same. */
function agree({ head, nodes }: World): void {
  for (const node of nodes) {
    for (const [actor, { incarnation }] of node.hosted) {
      const view = head.state.cluster.actor(actor);
      if (view?.node !== node.node || view.incarnation !== incarnation)
        throw new Error(`node ${node.node} has actor ${actor}, which is not its`);
    }
    if (new Set(node.starts).size !== node.starts.length) throw new Error('an incarnation was started twice');
    if (node.ends.size > 0) throw new Error('a death that nobody heard');
  }
  for (const { id, state, node } of head.list())
    if (state === 'alive' && !nodes.find((each) => each.node === node)?.hosted.has(id)) throw new Error(`actor ${id} is alive nowhere`);
}

function allFree({ head, driver, nodes, spawned, leases }: World): Promise<void> {
  // As if the driver's process had ended (a journal that is cut before it came does not know it).
  head.driverGone('d');
  head.apply({ type: 'owner-gone', owner: 'driver/1' });
  return quiet([driver, ...nodes]).then(() => {
    for (const { node, total, free, actors, leases } of head.state.cluster.nodes())
      if (free.cpus !== total.cpus || actors + leases > 0)
        throw new Error(
          `node ${node}: ${free.cpus} of ${total.cpus} cpus free, ${actors} actors: ${JSON.stringify(head.list())} on ${JSON.stringify(nodes.map((each) => [...each.hosted.values()]))}`,
        );
    for (const node of nodes) if (node.hosted.size + node.bundles.size > 0) throw new Error(`node ${node.node} still has something`);
    for (const request of leases) if (answersTo(driver, request).length === 0) throw new Error(`lease l${request} was never answered`);
    if (head.state.living !== 0) throw new Error(`${head.state.living} of ${spawned.length} live on`);
  });
}

t.test('every message twice, at once and again later, has the effect of once; what was reserved is free in the end', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const worlds = [1, 2].map((copies) => makeWorld(new Head({ seed: 7, lasting: false }), copies));
      for (const each of steps) {
        for (const world of worlds) {
          const peers = [world.driver, ...world.nodes];
          perform(world, each);
          await quiet(peers);
          if (world !== worlds[1]) continue;
          for (const peer of peers) peer.sayAgain();
          await quiet(peers);
        }
      }
      const [once, twice] = worlds.map(summary);
      t.same(twice, once) || assertFail('twice is not once');
      for (const world of worlds) {
        agree(world);
        // Whoever watches has heard the last word.
        for (const id of world.spawned) {
          const place = world.driver.place(id);
          const view = world.head.state.cluster.actor(place?.target ?? id);
          if (view?.state === 'alive' && (place?.status !== 'alive' || place.incarnation !== view.incarnation))
            throw new Error(`the driver does not know where actor ${id} is`);
        }
        await allFree(world);
        world.head.stop();
      }
    }),
    { numRuns: 25, seed: 20261130 },
  );
});

t.test('leases: one that is returned before it is granted is answered, and never granted', async (t) => {
  const world = makeWorld(new Head({ seed: 7, lasting: false }), 2);
  const { head, driver, nodes } = world;
  t.teardown(() => head.stop());
  const peers = [driver, ...nodes];
  const ask = (request: number, ask: Ask): void => driver.say({ t: 'ask', worker: 1, request, ask });
  await quiet(peers);
  ask(1, askLease('a', 3));
  ask(2, askLease('b', 3));
  ask(3, askLease('c', 2));
  ask(4, askLease('d', 3));
  await quiet(peers);
  const granted = [answersTo(driver, 1), answersTo(driver, 2)].flat().sort();
  t.same(granted, ['{"node":"a","gpus":[]}', '{"node":"b","gpus":[]}']);
  t.same([answersTo(driver, 3), answersTo(driver, 4)], [[], []], 'the nodes are full');
  ask(5, { q: 'lease-return', lease: 'c' });
  await quiet(peers);
  t.same(answersTo(driver, 3), ['failed: SINKFLEX_LEASE_LOST']);
  const order = driver.heard.flatMap((message) => (message.t === 'answer' ? [message.request] : []));
  t.ok(order.indexOf(3) < order.indexOf(5), 'before the return is');
  ask(6, { q: 'lease-return', lease: 'a' });
  await quiet(peers);
  t.match(answersTo(driver, 4)[0], /^\{"node":/, 'the next in the queue is');
  // A question that comes late, as after a lost connection.
  ask(7, askLease('c', 2));
  await quiet(peers);
  t.same(answersTo(driver, 7), ['failed: SINKFLEX_LEASE_LOST']);
  t.same([...head.state.cluster.leases()].map(({ lease }) => lease).sort(), ['b', 'd']);
  world.leases.push(1, 2, 3, 4);
  await allFree(world);
});

function assertFail(what: string): never {
  throw new Error(what);
}

t.test('a head made again from its journal, cut after any record, agrees with its nodes', async (t) => {
  const base = mkdtempSync(join(tmpdir(), 'sf-cut-'));
  t.teardown(() => rmSync(base, { recursive: true }));
  const whole = join(base, 'whole');
  const { journal } = await Journal.open(whole);
  const durable = (): Promise<void> => new Promise((resolve) => journal.whenDurable(resolve));
  const first = makeWorld(new Head({ seed: 3, lasting: true, journal }), 1);
  // How long the journal was when each actor's spawn was acknowledged.
  const acknowledged = new Map<number, number>();
  const length = (): number => statSync(join(whole, '0.log')).size;
  // What the nodes had when the journal was so long: a crash right then finds them like that.
  const moments: { length: number; nodes: { node: MadeNode; had: Pick<MadeNode, 'hosted' | 'ends' | 'bundles'> }[] }[] = [];
  const empty = (node: MadeNode) => ({ node, had: { hosted: new Map(), ends: new Map(), bundles: new Map() } });
  moments.push({ length: 0, nodes: first.nodes.map(empty) });
  for (const [index, what] of (
    ['spawn', 'spawn', 'group', 'die', 'spawn', 'restart', 'name', 'kill', 'name', 'remove', 'spawn'] as const
  ).entries()) {
    perform(first, { what, which: index, cpus: 0.5, maxRestarts: 1 });
    await quiet([first.driver, ...first.nodes], durable);
    for (const message of first.driver.heard)
      if (message.t === 'spawned' && !acknowledged.has(message.actor)) acknowledged.set(message.actor, length());
    const nodes = first.nodes.map((node) => {
      const { hosted, ends, bundles } = node;
      return { node, had: structuredClone({ hosted, ends, bundles }) };
    });
    moments.push({ length: length(), nodes });
  }
  agree(first);
  first.head.stop();
  await journal.close();
  const log = readFileSync(join(whole, '0.log'));
  const { records: all, journal: closed } = await Journal.open(whole);
  await closed.close();
  for (let n = 0, cut = 8; n <= all.length; cut += n < all.length ? 8 + log.readUInt32LE(cut) : 0, n++) {
    const records = all.slice(0, n);
    const state = HeadState.restore(3, undefined, records);
    for (const [actor, at] of acknowledged)
      if (at <= cut && !state.actors.has(actor) && !state.aliases.has(actor) && !state.refused.has(actor))
        t.fail(`actor ${actor} is forgotten at ${cut}`);
    const head = new Head({ seed: 3, lasting: true, state });
    const world: World = { ...first, head, driver: new Peer(head), nodes: [] };
    for (const { node, had } of moments.findLast((moment) => moment.length <= cut)!.nodes) {
      const again = new MadeNode(head, node.node, node.cpus);
      for (const [id, hosted] of had.hosted) again.hosted.set(id, { ...hosted });
      for (const [key, died] of had.ends) again.ends.set(key, died);
      for (const [key, bundle] of had.bundles) again.bundles.set(key, bundle);
      // Nobody heard of that end: the head was away.
      const [unheard] = again.hosted.keys();
      if (unheard !== undefined && records.length % 2 === 0) again.end(unheard, true);
      again.join();
      world.nodes.push(again);
    }
    world.driver.say({ t: 'attach', driver: 'd', pid: 1, processStart: 'd' });
    await quiet([world.driver, ...world.nodes]);
    agree(world);
    await allFree(world);
    head.stop();
  }
  t.ok(all.length > 20, `${all.length} records`);
});

t.test('a real agent that hears and says everything twice starts and ends everything once', async (t) => {
  const folder = makeRunFolder();
  const head = new Head({ seed: 1, lasting: false });
  const link: PeerLink = {
    send(message) {
      agent.onHead(structuredClone(message));
      agent.onHead(structuredClone(message));
    },
  };
  const agent: Agent = new Agent(
    {
      node: 'real',
      total: { cpus: 4 },
      labels: {},
      folder,
      token: Buffer.alloc(32, 7),
      sharedWorkers: 1,
      maxInFlightBytes: 2 ** 30,
      warmWorkers: { process: 0 },
      onOutput: () => {},
    },
    {
      send(message) {
        head.receive(structuredClone(message), link);
        head.receive(structuredClone(message), link);
      },
    },
  );
  const receive = agent.receive.bind(agent);
  agent.receive = (message, from) => {
    receive(message, from);
    receive(message, from);
  };
  t.teardown(async () => {
    await agent.close();
    head.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const heard: FromAgent[] = [];
  const driver = { worker: 0, send: (message: FromAgent) => void heard.push(message) };
  const until = async (what: (info: ActorInfo) => boolean): Promise<void> => {
    if (head.list().some(what)) return;
    await new Promise<void>((resolve) => {
      const stop = head.onActorChange((info) => {
        if (!what(info)) return;
        stop();
        resolve();
      });
    });
  };
  agent.join();
  const { id, module, methods } = definitionOf(Counter);
  for (const actor of [1, 2]) {
    const own = { kind: 'Counter', definition: id, module, exportName: 'Counter', methods: [...methods], isolation: 'shared' as const };
    const { header, sections } = encodeAlone([]);
    const spec = specOf(actor, { ...own, args: { header, sections }, owner: 'driver/0', maxRestarts: 2 });
    agent.receive({ t: 'spawn', spec, watch: true }, driver);
  }
  await until(({ id, state }) => id === 1 && state === 'alive');
  await until(({ id, state }) => id === 2 && state === 'alive');
  t.equal(agent.workers().length, 1);
  agent.receive({ t: 'kill', actor: 1, restart: true, drain: false, graceMs: 0, request: 1 }, driver);
  await until(({ id, incarnation, state }) => id === 1 && incarnation === 2 && state === 'alive');
  agent.receive({ t: 'kill', actor: 2, restart: false, drain: false, graceMs: 0, request: 2 }, driver);
  await until(({ id, state }) => id === 2 && state === 'dead');
  t.same(
    head.list().map(({ id, incarnation, state, restarts }) => [id, incarnation, state, restarts]),
    [
      [1, 2, 'alive', 1],
      [2, 1, 'dead', 0],
    ],
  );
  t.equal(heard.filter((message) => message.t === 'killed').length, 2, 'each request has one answer');
  t.match(agent.workers(), [{ actors: [1] }]);
});

t.test('a snapshot is the same as the records that it stands for', async (t) => {
  const world = makeWorld(new Head({ seed: 5, lasting: true }), 1);
  for (const [index, what] of (['spawn', 'group', 'name', 'name', 'die', 'kill'] as const).entries()) {
    perform(world, { what, which: index, cpus: 1, maxRestarts: 1 });
    await quiet([world.driver, ...world.nodes]);
  }
  const saved = world.head.state.snapshot();
  t.same(HeadState.restore(5, saved, []).snapshot(), saved);
  world.head.stop();
});
