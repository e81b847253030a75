// Agents on this machine: nodes of one host, each with a share of it if the settings say so.
import { availableParallelism, hostname } from 'node:os';
import { resourcesOf, wordsHere } from './agent-words.ts';
import type { ClusterSettings, Launcher, PlannedAgent } from './launcher.ts';
import { runHere, startTogether } from './processes.ts';

export function localLauncher(settings: ClusterSettings): Launcher {
  const agent = (i: number): PlannedAgent => ({
    node: `local-${i}`,
    where: hostname(),
    here: true,
    resources: resourcesOf(settings, { cpus: availableParallelism() }),
  });
  return {
    headHost: undefined,
    plan: () => Array.from({ length: settings.agents ?? 1 }, (_, i) => agent(i)),
    start: (agents, head) => startTogether(agents, (each) => runHere(wordsHere(each, head))),
    more: agent,
  };
}
