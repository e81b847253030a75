// A head of its own as what is observed: what it knows at once, and through its agents and drivers what their workers say.
import type { Head } from '../head/index.ts';
import type { EventLog } from './events.ts';
import type { Silent } from './facts.ts';
import type { Observable, ObservedWorker } from './observable.ts';
import type { Question } from './questions.ts';
import { watchHead } from './sources.ts';
import type { StackSample } from './stack-sample.ts';

/** On the way between head and agent, on top of what the worker gets. */
const RELAY_MS = 250;

export function watchCluster(head: Head, events: EventLog): Observable {
  const linkTo = (worker: number) => head.peers.driverLink(worker) ?? head.peers.nodeLink(nodeOf.get(worker) ?? '');
  /** Worker -> node, as the agents said last. */
  let nodeOf = new Map<number, string>();
  const ask = (worker: number, question: Question, timeoutMs: number): Promise<unknown> =>
    head.peers.query(linkTo(worker), worker, question, timeoutMs + RELAY_MS);
  return {
    ...watchHead(head, events),
    async workers(timeoutMs) {
      const workers: ObservedWorker[] = [...head.peers.drivers()].map(({ worker, pid }) => ({
        worker,
        name: `driver-${worker}`,
        isolation: 'driver',
        pid,
        health: 'ok',
        actors: [],
      }));
      const silent: Silent[] = [];
      const nodes = new Map<number, string>();
      await Promise.all(
        [...head.state.cluster.nodes()].map(async ({ node }) => {
          const pid = head.state.nodes.get(node)?.pid;
          try {
            const answer = await head.peers.query(head.peers.nodeLink(node), -1, { ask: 'workers' }, timeoutMs + RELAY_MS);
            for (const worker of answer as ObservedWorker[]) {
              nodes.set(worker.worker, node);
              workers.push(worker);
            }
          } catch {
            silent.push({ worker: -1, name: `node ${node}`, pid, why: 'silent' });
          }
        }),
      );
      nodeOf = nodes;
      return { workers: workers.sort((a, b) => a.worker - b.worker), silent };
    },
    ask,
    async stack(worker, timeoutMs) {
      return (await head.peers.query(linkTo(worker), -1, { ask: 'stack', worker }, timeoutMs + RELAY_MS)) as StackSample;
    },
  };
}
