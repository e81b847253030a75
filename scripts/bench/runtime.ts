// Suite `runtime`: calls, actors, values, faults and sizes of the actor runtime beside Ray, the same work in the same run.
import type { Suite } from './rows.ts';
import { actorAsync, actorManyToMany, actorSync } from './runtime/calls.ts';
import { collectiveAllReduce } from './runtime/collectives.ts';
import { actorCreate } from './runtime/create.ts';
import { echo } from './runtime/echo.ts';
import { faultKill, faultStop } from './runtime/faults.ts';
import { groupCreate } from './runtime/groups.ts';
import { idle } from './runtime/idle.ts';
import { objectBroadcast, objectPut } from './runtime/objects.ts';
import { overhead } from './runtime/overhead.ts';
import { scaleActors, scaleQueue, scaleReject } from './runtime/scale.ts';
import { actorStream } from './runtime/stream.ts';
import { taskAsync, taskSync } from './runtime/tasks.ts';

export const runtimeSuite: Suite = {
  'actor.sync.thread': (context) => actorSync(context, 'thread', 'awake'),
  'actor.sync.thread.idle': (context) => actorSync(context, 'thread', 'idle'),
  'actor.sync.process': (context) => actorSync(context, 'process', 'awake'),
  'actor.sync.process.idle': (context) => actorSync(context, 'process', 'idle'),
  'overhead.thread': (context) => overhead(context, 'thread'),
  'overhead.process': (context) => overhead(context, 'process'),
  'actor.async.thread': (context) => actorAsync(context, 'thread'),
  'actor.async.process': (context) => actorAsync(context, 'process'),
  'actor.nn.async': actorManyToMany,
  'task.sync': taskSync,
  'task.async': taskAsync,
  'actor.stream': actorStream,
  'actor.create.thread': (context) => actorCreate(context, 'thread'),
  'actor.create.process': (context) => actorCreate(context, 'process'),
  'actor.create.warm': (context) => actorCreate(context, 'warm'),
  'echo.1mb': (context) => echo(context, '1mb'),
  'echo.10mb': (context) => echo(context, '10mb'),
  'object.put.100mb': (context) => objectPut(context, '100mb'),
  'object.put.1gb': (context) => objectPut(context, '1gb'),
  'object.broadcast.100mb': objectBroadcast,
  'group.create': groupCreate,
  'collective.all_reduce.4kb': (context) => collectiveAllReduce(context, '4kb'),
  'collective.all_reduce.1mb': (context) => collectiveAllReduce(context, '1mb'),
  'collective.all_reduce.100mb': (context) => collectiveAllReduce(context, '100mb'),
  'fault.kill': faultKill,
  'fault.stop': faultStop,
  'idle.shared': (context) => idle(context, 'shared'),
  'idle.thread': (context) => idle(context, 'thread'),
  'idle.process': (context) => idle(context, 'process'),
  'scale.shared': (context) => scaleActors(context, 'shared'),
  'scale.thread': (context) => scaleActors(context, 'thread'),
  'scale.process': (context) => scaleActors(context, 'process'),
  'scale.queue': scaleQueue,
  'scale.queue.reject': scaleReject,
};
