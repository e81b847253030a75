// Who loses its connection to the head, and how long it has to come back, on virtual time; and who is never taken in.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { ToHead } from '../../runtime/control/index.ts';
import { Process, VirtualTime } from '../../runtime/faults/simulation/time.ts';
import { Head } from '../../runtime/head/index.ts';
import { joinHead } from '../../runtime/node/index.ts';
import { Channel, HEAD, listen } from '../../runtime/wire/index.ts';
import { MadeNode, Peer, quiet, specOf } from './head-world.ts';

t.test('a driver may be away for long, since it may compute without a turn of its loop; a node may not', async (t) => {
  const time = new VirtualTime();
  const head = new Head({ seed: 7, lasting: true, clock: new Process('head', 1, time).clock(), runs: () => true });
  t.teardown(() => head.stop());
  const nodes = ['a', 'b'].map((node) => new MadeNode(head, node, 3));
  const driver = new Peer(head);
  driver.say({ t: 'attach', driver: 'd', pid: 1, processStart: 'd' });
  for (const node of nodes) node.join();
  const peers = [driver, ...nodes];
  const spec = specOf(2 ** 24 + 1, { request: { resources: { cpus: 1 }, labels: {}, strategy: { node: 'a', soft: false } } });
  driver.say({ t: 'spawn', spec });
  await quiet(peers);
  const state = () => head.state.cluster.actor(spec.actor)?.state;
  t.equal(state(), 'alive');
  head.disconnected(driver);
  head.disconnected(nodes[1]!);
  await time.runUntil(50_000);
  t.equal(state(), 'alive', 'what it owns lives');
  t.same(
    [...head.state.cluster.nodes()].map(({ node }) => node),
    ['a'],
  );
  driver.say({ t: 'attach', driver: 'd', pid: 1, processStart: 'd' });
  await time.runUntil(120_000);
  t.equal(state(), 'alive', 'it came back');
  head.disconnected(driver);
  await time.runUntil(190_000);
  await quiet(peers);
  t.equal(state(), 'dead', 'it did not');
});

t.test('an agent that is told to end as it joins says so at once', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sf-'));
  const token = 'ab'.repeat(32);
  writeFileSync(join(folder, 'token'), token, { mode: 0o600 });
  const head = await listen(folder, Buffer.from(token, 'hex'), HEAD, (caller, transport) => {
    const channel: Channel = new Channel(caller, transport, {
      onMessage: (_, [message]) => void ((message as ToHead).t === 'join' && channel.send([{ t: 'shutdown' }])),
      onClose: () => {},
    });
    channel.open();
  });
  t.teardown(() => {
    head.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const began = performance.now();
  await t.rejects(joinHead({ address: folder, node: 'unwanted', onOutput: () => {} }), {
    code: 'SINKFLEX_NO_HEAD',
    message: /did not take the node in/,
  });
  t.ok(performance.now() - began < 25_000, 'before the time for an answer is over');
});
