// The worker that an actor asks for.
import type { ActorSpec, WorkerBirth } from '../control/index.ts';
import type { AgentOptions } from './agent.ts';
import type { WorkerRequest } from './carrier.ts';

/** Environment and limits are those of a process of its own; threads and shared workers are as the agent is. */
export function workerRequest(spec: ActorSpec, birth: WorkerBirth, name: string): WorkerRequest {
  const alone = spec.isolation === 'process';
  return {
    birth,
    label: `sinkflex:${name}`,
    env: alone ? spec.env : {},
    execArgv: alone ? spec.execArgv : [],
    ...(alone && spec.cwd !== undefined ? { cwd: spec.cwd } : {}),
    module: spec.module,
    memory: alone ? (spec.request.resources.memory ?? 0) : 0,
    unresponsiveMs: spec.unresponsiveMs,
  };
}

/** What it is told when it starts. */
export function birthOf(options: AgentOptions, worker: number, isolation: ActorSpec['isolation']): WorkerBirth {
  const { folder, ownFolder, token, maxInFlightBytes, channels, store, timeline, way, lease } = options;
  const address = lease?.address;
  return {
    worker,
    folder,
    token: new Uint8Array(token),
    agentPid: process.pid,
    isolation,
    maxInFlightBytes,
    timeline: timeline === true,
    ...(ownFolder === undefined ? {} : { noRelay: true }),
    ...(channels === undefined ? {} : { channels }),
    ...(lease === undefined || address === undefined ? {} : { lease: { address, epoch: lease.epoch } }),
    ...(way === undefined ? {} : { gateway: way.socket, direct: way.direct }),
    ...(store === undefined ? {} : { store }),
  };
}
