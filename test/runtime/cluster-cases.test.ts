// The control plane case by case: groups, queues, explain(), drains, names, owners, agents that come back.
import t from 'tap';
import { Cluster, type ClusterEffect, ownerActor, type Spawn } from '../../runtime/control/index.ts';
import { clusterOf, kinds, POLICY, placeOf, spawn, up } from './cluster-support.ts';

t.test('a group is agreed in two phases, tried again after a refusal, and gets back what a node took with it', (t) => {
  const { apply, cluster } = clusterOf(up('n0', { cpus: 2 }), up('n1', { cpus: 2 }), up('n2', { cpus: 2 }));
  const bundles = [{ resources: { cpus: 2 } }, { resources: { cpus: 2 } }];
  t.same(kinds(apply({ type: 'group-create', group: 'g', bundles, strategy: 'STRICT_SPREAD', lifetime: 'owned', owner: 'driver/0' })), [
    'prepare n0',
    'prepare n1',
    'announce-group',
  ]);
  apply(spawn(1, { cpus: 1 }, { request: { group: 'g', bundle: 1 }, policy: { ...POLICY, maxRestarts: 1 } }));
  t.equal(cluster.actor(1)?.state, 'pending');
  t.match(cluster.explain({ actor: 1 })?.text, /g is preparing: placement group g awaits the answer of n0, n1/);
  t.same(kinds(apply({ type: 'prepared', group: 'g', attempt: 1, node: 'n0', ok: true })), []);
  const refused = apply({ type: 'prepared', group: 'g', attempt: 1, node: 'n1', ok: false });
  t.same(kinds(refused), ['release n0', 'release n1', 'wait-group', 'announce-group']);
  t.match(cluster.explain({ group: 'g' })?.text, /refused by n1/);
  t.same(cluster.node('n0')?.free, { cpus: 2 });
  t.same(kinds(apply({ type: 'prepared', group: 'g', attempt: 1, node: 'n0', ok: true })), [], 'late');
  t.same(
    kinds(apply({ type: 'group-retry', group: 'g', attempt: 1 })),
    ['prepare n0', 'prepare n2', 'announce-group'],
    'not the one that refused',
  );
  apply({ type: 'prepared', group: 'g', attempt: 2, node: 'n2', ok: true });
  const made = apply({ type: 'prepared', group: 'g', attempt: 2, node: 'n0', ok: true });
  t.same(kinds(made), ['commit n0', 'commit n2', 'announce-group', 'start n2', 'announce']);
  t.equal(cluster.group('g')?.state, 'created');

  apply(up('n3', { cpus: 2 }));
  const lost = apply({ type: 'node-down', node: 'n2' });
  t.same(
    kinds(lost),
    ['announce', 'wait', 'announce-group', 'prepare n1'],
    'only the lost bundle is placed again, and n1 may be asked again',
  );
  t.equal(cluster.group('g')?.state, 'rescheduling');
  apply({ type: 'backoff-elapsed', actor: 1, incarnation: 2 });
  t.equal(cluster.actor(1)?.state, 'pending');
  t.same(kinds(apply({ type: 'prepared', group: 'g', attempt: 1, node: 'n1', ok: true })), [], 'an answer to another question');
  const back = apply({ type: 'prepared', group: 'g', attempt: 3, node: 'n1', ok: true });
  t.same(kinds(back), ['commit n1', 'announce-group', 'start n1', 'announce']);

  const removal = apply({ type: 'group-remove', group: 'g' });
  t.same(kinds(removal), ['release n0', 'announce', 'terminate n1', 'announce-group']);
  t.equal(cluster.group('g')?.state, 'removing');
  t.same(kinds(apply({ type: 'died', actor: 1, incarnation: 2 })), ['announce', 'release n1', 'announce-group']);
  t.match(cluster.actor(1), { state: 'dead', failed: false, because: 'its placement group g was removed' });
  t.same([cluster.node('n0')?.free, cluster.node('n1')?.free], [{ cpus: 2 }, { cpus: 2 }]);
  apply(spawn(2, { cpus: 1 }, { request: { group: 'g' } }));
  t.match(cluster.actor(2), { state: 'dead', because: 'its placement group g was removed' });
  t.end();
});

t.test('a bundle is used as soon as its node has agreed, whatever the group still lacks', (t) => {
  const { apply, cluster } = clusterOf(up('n0', { cpus: 2 }), up('n1', { cpus: 2 }), up('n2', { cpus: 2 }));
  const bundles = [{ resources: { cpus: 2 } }, { resources: { cpus: 2 } }];
  apply({ type: 'group-create', group: 'g', bundles, strategy: 'STRICT_SPREAD', lifetime: 'detached' });
  for (const node of ['n0', 'n1']) apply({ type: 'prepared', group: 'g', attempt: 1, node, ok: true });
  t.same(kinds(apply({ type: 'node-down', node: 'n1' })), ['announce-group', 'prepare n2']);
  t.same(kinds(apply({ type: 'node-down', node: 'n0' })), ['announce-group'], 'an attempt is under way');
  apply(spawn(1, { cpus: 1 }, { request: { group: 'g', bundle: 1 } }));
  t.same(kinds(apply({ type: 'prepared', group: 'g', attempt: 2, node: 'n2', ok: true })), [
    'commit n2',
    'announce-group',
    'start n2',
    'announce',
  ]);
  t.equal(cluster.group('g')?.state, 'rescheduling');
  t.same(kinds(apply(up('n3', { cpus: 2 }))), ['prepare n3', 'announce-group']);
  apply({ type: 'prepared', group: 'g', attempt: 3, node: 'n3', ok: true });
  t.equal(cluster.group('g')?.state, 'created');
  t.end();
});

// --- queues

t.test('what comes free goes to who has waited longest; a large request holds up nobody but its like', (t) => {
  const { apply, cluster } = clusterOf(up('n', { cpus: 2 }));
  apply(spawn(1, { cpus: 2 }));
  apply(spawn(2, { cpus: 8 }));
  apply(spawn(3, { cpus: 8 }));
  apply({ type: 'lease', lease: 'first', request: spawn(0, { cpus: 1 }).request, owner: 'driver/0' });
  apply(spawn(4, { cpus: 1 }));
  apply(spawn(5, { cpus: 1 }));
  apply(spawn(6, { cpus: 0.5 }));
  t.equal(cluster.explain({ actor: 5 })?.ahead, 2);
  t.match(cluster.explain({ actor: 5 })?.text, / 2 of the same kind wait before it\.$/);
  t.equal(cluster.explain({ actor: 3 })?.ahead, 1);
  t.same(kinds(apply({ type: 'died', actor: 1, incarnation: 1 })), ['announce', 'leased n', 'start n', 'announce']);
  t.equal(cluster.actor(4)?.state, 'starting');
  t.equal(cluster.actor(5)?.state, 'pending');
  t.equal(cluster.actor(6)?.state, 'pending');
  apply(spawn(7, { cpus: 1 }));
  t.equal(placeOf(apply({ type: 'lease-return', lease: 'first' })), 'n');
  t.equal(cluster.actor(5)?.state, 'starting', 'before the newer one of its kind');
  t.same(kinds(apply(up('big', { cpus: 8 }))), ['start big', 'announce']);
  t.equal(cluster.actor(2)?.node, 'big', 'the one that has waited longest');
  t.end();
});

t.test('a restart goes to the end of the queue, and keeps its place there when the cluster is restored', (t) => {
  const { apply, cluster } = clusterOf(up('n', { cpus: 1 }));
  apply(spawn(1, { cpus: 1 }, { policy: { ...POLICY, maxRestarts: 1 } }));
  apply(spawn(2, { cpus: 1 }));
  apply(spawn(3, { cpus: 1 }));
  apply({ type: 'died', actor: 1, incarnation: 1 });
  apply({ type: 'backoff-elapsed', actor: 1, incarnation: 2 });
  const restored = Cluster.restore(JSON.parse(JSON.stringify(cluster.snapshot())));
  for (const one of [cluster, restored]) {
    one.apply({ type: 'died', actor: 2, incarnation: 1 }, 0);
    t.same([one.actor(3)?.state, one.actor(1)?.state], ['starting', 'pending']);
  }
  t.end();
});

t.test('nothing is placed on a suspect node; what runs there goes on, and who waits is served when it is heard again', (t) => {
  const { apply, cluster } = clusterOf(up('a', { cpus: 4 }), up('b', { cpus: 1 }));
  apply(spawn(1, { cpus: 1 }, { request: { strategy: { node: 'a', soft: false } } }));
  t.same(kinds(apply({ type: 'node-suspect', node: 'a', because: 'it was last heard of 2.4 s ago' })), []);
  t.match(cluster.node('a'), { state: 'suspect', because: 'it was last heard of 2.4 s ago', actors: 1 });
  t.same(kinds(apply(spawn(2, { cpus: 1 }))), ['start b', 'announce']);
  t.same(kinds(apply(spawn(3, { cpus: 1 }))), ['announce']);
  t.match(cluster.explain({ actor: 3 }), {
    feasible: true,
    text: /1 of 2 nodes is busy \(b .*1 of 2 nodes is suspect \(a is suspect: it was last heard of 2.4 s ago\)/,
  });
  const group = { type: 'group-create', group: 'g', lifetime: 'owned', owner: 'driver/0' } as const;
  t.same(kinds(apply({ ...group, bundles: [{ resources: { cpus: 1 } }], strategy: 'PACK' })), ['announce-group']);
  t.same(kinds(apply({ type: 'node-trusted', node: 'a' })), ['start a', 'announce', 'prepare a', 'announce-group']);
  t.equal(cluster.node('a')?.state, 'up');
  // Its lease is over: as if it had died.
  apply({ type: 'node-suspect', node: 'b', because: 'it is silent' });
  t.same(kinds(apply({ type: 'node-down', node: 'b' })), ['announce']);
  t.match(cluster.actor(2), { state: 'dead' });
  t.end();
});

t.test('explain() names every node and what is short', (t) => {
  const { apply, cluster } = clusterOf(
    up('a', { cpus: 2 }, { zone: 'x' }),
    up('b', { cpus: 4, gpus: 1 }),
    up('c', { cpus: 1 }, { zone: 'x' }),
    up('d', { cpus: 8 }, { zone: 'x' }),
  );
  apply(spawn(1, { cpus: 1.5 }, { request: { strategy: { node: 'a', soft: false } } }));
  apply({ type: 'node-drain', node: 'd' });
  apply(spawn(2, { cpus: 2 }, { name: 'trainer', request: { labels: { zone: 'x' } } }));
  const why = cluster.explain({ actor: 2 })!;
  t.match(why, { subject: { actor: 2 }, state: 'pending', feasible: true, ahead: 0 });
  t.same(
    why.asks[0]?.nodes.map(({ node, verdict, text }) => [node, verdict, text]),
    [
      ['a', 'busy', 'has 0.5 cpus free of 2 cpus'],
      ['b', 'labels', 'it has no zone, not x'],
      ['c', 'too-small', 'has 1 cpu in all'],
      ['d', 'draining', 'is draining'],
    ],
  );
  t.same(why.asks[0]?.nodes[0]?.short, [{ resource: 'cpus', asked: 2, free: 0.5, total: 2 }]);
  t.match(why.text, /^actor trainer waits for 2 cpus: 1 of 4 nodes is busy \(a has 0\.5 cpus free of 2 cpus\), 1 of 4 nodes is too small/);
  apply(spawn(3, { gpus: 2, memory: 3 * 2 ** 30 }));
  t.equal(cluster.explain({ actor: 3 })?.feasible, false);
  t.match(
    cluster.explain({ actor: 3 })?.text,
    /waits for 2 gpus and 3 GiB of memory: 3 of 4 nodes are too small \(a has no gpus; has no memory;/,
  );
  apply({
    type: 'group-create',
    group: 'g',
    bundles: [{ resources: { cpus: 1 } }, { resources: { cpus: 1 } }, { resources: { cpus: 1 } }, { resources: { cpus: 1 } }],
    strategy: 'STRICT_SPREAD',
    lifetime: 'detached',
  });
  t.match(cluster.explain({ group: 'g' }), {
    feasible: false,
    state: 'pending',
    text: /each bundle needs a node of its own: 4 bundles, 3 nodes/,
  });
  t.equal(cluster.explain({ actor: 99 }), undefined);
  t.match(cluster.explain({ actor: 1 })?.text, /^actor a1 does not wait for room: it is starting on node a\.$/);
  t.end();
});

// --- drains, names, owners

t.test('a draining node: what can restart moves, uncounted; the rest stays until the end', (t) => {
  const { apply, cluster } = clusterOf(up('old', { cpus: 4 }));
  const policy = { ...POLICY, maxRestarts: 1 };
  apply(spawn(1, { cpus: 1 }, { policy }));
  apply(spawn(2, { cpus: 1 }));
  apply(up('new', { cpus: 4 }));
  t.same(kinds(apply({ type: 'node-drain', node: 'old' })), ['announce', 'terminate old']);
  t.equal(cluster.actor(2)?.state, 'starting');
  t.same(kinds(apply({ type: 'died', actor: 1, incarnation: 1 })), ['announce', 'wait']);
  t.equal(placeOf(apply({ type: 'backoff-elapsed', actor: 1, incarnation: 2 })), 'new');
  apply({ type: 'node-down', node: 'old' });
  t.equal(cluster.actor(2)?.state, 'dead');
  apply({ type: 'died', actor: 1, incarnation: 2 });
  t.equal(cluster.actor(1)?.state, 'restarting', 'the move was not counted');
  apply({ type: 'backoff-elapsed', actor: 1, incarnation: 3 });
  apply({ type: 'died', actor: 1, incarnation: 3 });
  t.match(cluster.actor(1), { state: 'dead', failed: true, restarts: 2 });
  t.end();
});

t.test('names: unique, got or created at once, handed on by one that is being killed', (t) => {
  const { apply, cluster } = clusterOf(up('n', { cpus: 4 }));
  const named = (actor: number, more: Partial<Spawn> = {}): ClusterEffect[] => apply(spawn(actor, {}, { name: 'x', ...more }));
  named(1);
  t.same(named(2), [{ type: 'refused', actor: 2, existing: 1, why: 'name' }]);
  t.same(named(3, { getIfExists: true }), [{ type: 'exists', actor: 3, existing: 1 }]);
  t.same(named(4, { getIfExists: true, definition: 'B' }), [{ type: 'refused', actor: 4, existing: 1, why: 'definition' }]);
  apply({ type: 'kill', actor: 1, restart: false });
  t.same(kinds(named(5, { getIfExists: true })), ['announce']);
  t.equal(cluster.named('x'), 5);
  t.match(cluster.explain({ actor: 5 })?.text, /waits for actor 1, which had its name, to end/);
  t.same(named(6, { getIfExists: true }), [{ type: 'exists', actor: 6, existing: 5 }]);
  t.same(kinds(apply({ type: 'died', actor: 1, incarnation: 1 })), ['announce', 'start n', 'announce']);
  apply({ type: 'kill', actor: 5, restart: false });
  apply({ type: 'died', actor: 5, incarnation: 1 });
  t.equal(cluster.named('x'), undefined);
  t.equal(placeOf(named(7)), 'n');
  t.end();
});

t.test('what an incarnation owns ends with it, down to the last descendant', (t) => {
  const { apply, cluster } = clusterOf(up('n', { cpus: 8 }));
  const owned = (actor: number, owner: number, more: Partial<Spawn> = {}): ClusterEffect[] =>
    apply(spawn(actor, { cpus: 1 }, { owner: ownerActor(owner, 1), ...more }));
  apply(spawn(1, {}, { policy: { ...POLICY, maxRestarts: 5 } }));
  owned(2, 1);
  owned(3, 2);
  owned(4, 1, { lifetime: 'detached' });
  apply({ type: 'lease', lease: 'l', request: spawn(0, { cpus: 1 }).request, owner: ownerActor(1, 1) });
  apply({
    type: 'group-create',
    group: 'g',
    bundles: [{ resources: { cpus: 1 } }],
    strategy: 'PACK',
    lifetime: 'owned',
    owner: ownerActor(1, 1),
  });
  const effects = kinds(apply({ type: 'died', actor: 1, incarnation: 1 }));
  t.ok(effects.includes('terminate n') && effects.includes('lease-lost') && effects.includes('release n'), effects.join());
  t.equal(cluster.actor(1)?.state, 'restarting');
  t.match(cluster.actor(2), { state: 'stopping', because: 'its owner actor/1/1 is gone' });
  t.equal(cluster.actor(3)?.state, 'starting', 'its owner is not dead yet');
  apply({ type: 'died', actor: 2, incarnation: 1 });
  t.equal(cluster.actor(3)?.state, 'stopping');
  t.equal(cluster.actor(4)?.state, 'starting');
  owned(5, 1);
  t.match(cluster.actor(5), { state: 'dead', because: /gone before it started/ }, 'a late spawn of the old incarnation');
  apply({ type: 'owner-gone', owner: 'driver/0' });
  t.equal(cluster.actor(1)?.state, 'dead');
  t.same(apply({ type: 'lease', lease: 'm', request: spawn(0, {}).request, owner: 'driver/0' }), [{ type: 'lease-lost', lease: 'm' }]);
  t.end();
});

t.test('an agent that comes back is told what it should have, and ends what it should not', (t) => {
  const { apply, cluster } = clusterOf(up('n', { cpus: 8 }));
  const policy = { ...POLICY, maxRestarts: 1 };
  for (const actor of [1, 2, 3, 4, 5]) apply(spawn(actor, { cpus: 1 }, { policy }));
  apply({ type: 'started', actor: 2, incarnation: 1 });
  for (const actor of [4, 5]) apply({ type: 'kill', actor, restart: false });
  apply({ type: 'group-create', group: 'g', bundles: [{ resources: { cpus: 1 } }], strategy: 'PACK', lifetime: 'detached' });
  apply({ type: 'prepared', group: 'g', attempt: 1, node: 'n', ok: true });
  const actors = [
    { actor: 3, incarnation: 1, started: true },
    { actor: 4, incarnation: 1, started: true },
    { actor: 9, incarnation: 2, started: true },
  ];
  const bundles = [
    { group: 'g', attempt: 1, bundle: 0 },
    { group: 'g', attempt: 7, bundle: 0 },
    { group: 'old', attempt: 3, bundle: 1 },
  ];
  const effects = apply({
    type: 'node-up',
    node: 'n',
    total: { cpus: 8 },
    labels: {},
    running: { actors, bundles },
  });
  t.same(effects, [
    { type: 'start', actor: 1, incarnation: 1, node: 'n', gpus: [] },
    { type: 'announce', actor: 2 },
    { type: 'wait', actor: 2, incarnation: 2, delayMs: 100 },
    { type: 'announce', actor: 3 },
    { type: 'terminate', actor: 4, incarnation: 1, node: 'n', why: 'kill' },
    { type: 'terminate', actor: 5, incarnation: 1, node: 'n', why: 'kill' },
    { type: 'terminate', actor: 9, incarnation: 2, node: 'n', why: 'stale' },
    { type: 'commit', group: 'g', attempt: 1, node: 'n', bundles: [0] },
    { type: 'release', group: 'g', attempt: 7, node: 'n', bundles: [0] },
    { type: 'release', group: 'old', attempt: 3, node: 'n', bundles: [1] },
  ]);
  t.equal(cluster.actor(3)?.state, 'alive');
  t.match(
    cluster.actor(5),
    { state: 'stopping', node: 'n' },
    'its start may be on its way: it holds what it has until its agent says that it is not there',
  );
  t.end();
});
