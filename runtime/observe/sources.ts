// Head and agent as sources: what the head knows at once, and every change of either as an event.
import type { ActorInfo } from '../api/types.ts';
import type { Head } from '../head/index.ts';
import type { Agent } from '../node/index.ts';
import type { EventLog } from './events.ts';
import type { LogFolder } from './logs.ts';
import type { Observable } from './observable.ts';

export function watchHead(head: Head, events: EventLog): Pick<Observable, 'actors' | 'nodes' | 'groups' | 'demand' | 'why'> {
  const { cluster } = head.state;
  head.onActorChange((actor) => actorEvent(events, actor));
  head.onClusterChange((what, name, change, details) => events.add(what, name, change, details));
  return {
    actors: () => head.list(),
    nodes: () => [...cluster.nodes()],
    groups: () => [...cluster.groups()],
    demand: () => cluster.demand(),
    why: (actor) => cluster.explain({ actor })?.text,
  };
}

export function watchAgent(agent: Agent, events: EventLog, logs: LogFolder): void {
  agent.onWorkerChange(({ worker, isolation, pid, name, health }, end) => {
    const change = end !== undefined ? 'ended' : health !== 'ok' ? health : 'started';
    events.add('worker', `${isolation}-${worker}`, change, {
      ...(pid === undefined ? {} : { pid }),
      ...(end?.exitCode === undefined ? {} : { exitCode: end.exitCode }),
      ...(end?.signal === undefined ? {} : { signal: end.signal }),
    });
    if (end !== undefined && pid !== undefined && isolation !== 'thread') logs.ended(name, pid);
  });
}

function actorEvent(events: EventLog, { name, kind, incarnation, state, health, pid, restarts, cause }: ActorInfo): void {
  events.add('actor', name, state, {
    kind,
    incarnation,
    ...(pid === undefined ? {} : { pid }),
    ...(restarts > 0 ? { restarts } : {}),
    ...(health === 'ok' ? {} : { health }),
    ...(cause === undefined || state === 'alive' ? {} : { cause }),
  });
}
