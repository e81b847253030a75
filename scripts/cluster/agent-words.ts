// The words of `sinkflex agent` that every launcher says alike.
import type { ClusterSettings, HeadPlace, PlannedAgent } from './launcher.ts';

/** For the machine of the head: by its folder. */
export function wordsHere({ node, resources }: PlannedAgent, { folder }: HeadPlace): string[] {
  return ['agent', '--join', folder, '--node', node, '--json', '--attended', ...amounts(resources)];
}

/** For another one. Paths are those on that machine; `host`: its name, as others call it. */
export function wordsThere(
  { node, resources }: PlannedAgent,
  { url }: HeadPlace,
  o: { host: string; tokenFile: string; tls: { ca: string; cert: string; key: string } | undefined },
): string[] {
  const tls = o.tls === undefined ? [] : ['--tls-ca', o.tls.ca, '--tls-cert', o.tls.cert, '--tls-key', o.tls.key];
  const where = ['--join', url!, '--token-file', o.tokenFile, '--listen', `${o.host.includes(':') ? `[${o.host}]` : o.host}:0`];
  return ['agent', ...where, '--node', node, '--json', '--attended', ...amounts(resources), ...tls];
}

const amounts = ({ cpus, gpus }: PlannedAgent['resources']): string[] => [
  ...(cpus === undefined ? [] : ['--cpus', String(cpus)]),
  ...(gpus === undefined ? [] : ['--gpus', String(gpus)]),
];

/** What the settings say of every agent, over what is known of its machine. */
export const resourcesOf = ({ agent_cpus }: ClusterSettings, known: PlannedAgent['resources'] = {}): PlannedAgent['resources'] => ({
  ...known,
  ...(agent_cpus === null ? {} : { cpus: agent_cpus }),
});
