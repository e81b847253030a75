// A pool, a queue between actors, and a group whose members live and die together.
//   npm run build && node dist/examples/patterns/main.js
import { ActorPool, createQueue, init, shutdown, spawn, spawnGroup } from 'sinkflex/runtime';
import { Worker } from './actors.ts';

await init();

const pool = new ActorPool([spawn(Worker, { isolation: 'thread' }), spawn(Worker, { isolation: 'thread' })], { perActor: 2 });
const squares: number[] = [];
for await (const square of pool.map([1, 2, 3, 4, 5], (worker, x) => worker.square(x))) squares.push(square);
console.log(squares.join(' '));

const queue = createQueue<number>({ maxSize: 8 });
const consumers = spawnGroup(Worker, 2, { isolation: 'thread' });
const totals = consumers.call.consume(queue);
for (let i = 1; i <= 100; i++) await queue.put(i); // waits when the consumers are behind
await queue.close();
console.log((await totals).reduce((a, b) => a + b));

const group = spawnGroup(Worker, 3, { supervision: 'one-for-all', maxRestarts: 1, isolation: 'thread' });
await group.ready();
console.log((await group.broadcast.mean(Float64Array.of(1, 2, 6))).join(' '));
const restarted = new Promise((resolve) => group.onRestart(resolve));
await group
  .at(1)
  .crash()
  .catch((error: unknown) => console.log((error as Error).name));
await restarted;
console.log(`incarnations ${(await group.call.incarnation()).join(' ')}`);

await shutdown();
