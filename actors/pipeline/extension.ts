/** Nodes that join a run: each gets as many rollouts as each had at the beginning, with an environment of their own; they end with it. */
import { kill, ready } from '../../runtime/index.ts';
import { type Cast, rolloutWorker, spawnEnvironment, spawnRollout } from './cast.ts';
import type { RolloutPool } from './pool.ts';

const READY_MS = 60_000;

/** From now on, until the hosts are closed. */
export function growWithHosts({ hosts, casting, rollouts, environments }: Cast, pool: RolloutPool, warn: (text: string) => void): void {
  const share = Math.max(1, Math.round(rollouts.length / Math.max(1, hosts.deal.others)));
  let nextRollout = rollouts.length;
  let nextEnvironment = environments.length;
  const onNode = new Map<string, () => void>();
  hosts.watchNodes(
    {
      async joined(node) {
        const there = { strategy: { node, soft: false } };
        const environment = spawnEnvironment(casting, nextEnvironment++, there);
        const more = Array.from({ length: share }, () => {
          const i = nextRollout++;
          return { i, handle: spawnRollout(casting, i, there, [environment]) };
        });
        const all = [environment, ...more.map(({ handle }) => handle)];
        onNode.set(node, () => {
          for (const each of all) void kill(each);
        });
        await Promise.all(all.map((each) => ready(each, { timeoutMs: READY_MS })));
        for (const { i, handle } of more) pool.add(rolloutWorker(hosts, i, handle));
      },
      left(node) {
        onNode.get(node)?.();
        onNode.delete(node);
      },
    },
    warn,
  );
}
