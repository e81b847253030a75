// One host's agent: worker pool, liveness, clean ends.

export { type StackFrame, type StackSample, stackText } from '../observe/stack-sample.ts';
export { Agent, type AgentOptions, HARD_AFTER_MS } from './agent.ts';
export { type JoinedAgent, type JoinOptions, joinHead } from './agent-process.ts';
export { nodeCapacity } from './capacity.ts';
export { readToken } from './cluster-folder.ts';
export { type ClusterPlace, openPlace, type PlaceOptions } from './cluster-place.ts';
export { Directory, type Subscriber } from './directory.ts';
export { Guests } from './guests.ts';
export { HeadConnection } from './head-connection.ts';
export { RouteAsker } from './route-asker.ts';
export { makeRunFolder, sweepFolder, sweepRunFolders } from './run-folder.ts';
export { WorkerNumbers } from './worker-numbers.ts';
