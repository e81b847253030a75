// What programs build again and again from actors: pools, queues, groups.
export { ActorPool, type ActorPoolOptions } from './actor-pool.ts';
export { ActorGroup, type GroupCalls, type GroupOptions, spawnGroup } from './group.ts';
export { createQueue, Queue, type QueueHandle, type QueueOptions, type WaitOptions } from './queue.ts';
export { type Spread, spread } from './spread.ts';
