// Seeing a run: what its workers are doing, what has happened, what was written; from the driver and from outside. What every worker loads
// (worker-state.ts) and what commands need (client.ts, runs.ts) is imported from its own file, so that workers load no more.
export { watchCluster } from './cluster-source.ts';
export { EventLog } from './events.ts';
export { LogFolder } from './logs.ts';
export type { Observable, ObservedWorker } from './observable.ts';
export { Observatory } from './observatory.ts';
export { type OpenObservatory, openObservatory } from './open.ts';
export { watchAgent, watchHead } from './sources.ts';
