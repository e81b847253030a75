import type { ActorSpec } from '../../control/index.ts';

/** An actor of the simulation. */
export function specOf(actor: number, more: Partial<ActorSpec>): ActorSpec {
  return {
    actor,
    name: `actor-${actor}`,
    kind: 'Simulated',
    definition: 'simulation#Simulated',
    module: 'file:///simulated.js',
    exportName: 'Simulated',
    methods: [],
    streams: [],
    args: { header: new Uint8Array([1]), sections: new Uint8Array() },
    isolation: 'process',
    request: { resources: { cpus: 1 }, labels: {}, strategy: 'hybrid' },
    getIfExists: false,
    lifetime: 'owned',
    threads: 1,
    maxRestarts: 0,
    restartWindowMs: 60_000,
    restartBackoffMs: 100,
    maxConcurrency: 1,
    maxPending: 10,
    onFull: 'wait',
    concurrencyGroups: {},
    execArgv: [],
    checkpointIntervalMs: 0,
    unresponsiveMs: 0,
    env: {},
    imports: [],
    ...more,
  };
}
