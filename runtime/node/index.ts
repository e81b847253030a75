// One host's agent: worker pool, liveness, clean ends.
export { Agent, type AgentOptions, type Subscriber } from './agent.ts';
export { makeRunFolder, sweepRunFolders } from './run-folder.ts';
