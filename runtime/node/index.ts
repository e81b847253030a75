// One host's agent: worker pool, liveness, clean ends.
export { Agent, type AgentOptions } from './agent.ts';
export type { Subscriber } from './records.ts';
export { makeRunFolder, sweepRunFolders } from './run-folder.ts';
