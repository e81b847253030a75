// Agents as pods of Kubernetes: fills in scripts/deploy/agents.yaml and gives it to kubectl, which knows where the cluster is and who asks.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments, stringify } from 'yaml';
import { CommandError } from '../errors.ts';
import { packageRoot } from '../package-root.ts';
import { resourcesOf } from './agent-words.ts';
import type { ClusterSettings, HeadPlace, Launcher, PlannedAgent } from './launcher.ts';
import { runToEnd } from './processes.ts';

const MANIFESTS = join(packageRoot, 'scripts', 'deploy', 'agents.yaml');
/** Of the headless service: pods are `<pod>.sinkflex-agents.<namespace>.svc`. */
const SERVICE = 'sinkflex-agents';
/** A cluster that does not answer is noticed. */
const KUBECTL_MS = 60_000;

interface Manifest {
  kind: string;
  metadata: { name: string; namespace?: string };
}
interface Secret extends Manifest {
  data: Record<string, string>;
}
interface StatefulSet extends Manifest {
  spec: {
    replicas: number;
    template: {
      spec: {
        containers: { image: string; args: string[]; resources: { requests: Record<string, string>; limits?: Record<string, string> } }[];
      };
    };
  };
}

/** The manifests of agents.yaml for this run. */
export async function agentManifests(
  settings: ClusterSettings,
  agents: readonly PlannedAgent[],
  { url, tokenFile, certify }: HeadPlace,
): Promise<Manifest[]> {
  if (settings.image === null)
    throw new CommandError(
      'SINKFLEX_USAGE',
      'cluster.launcher=kubernetes wants an image that holds this package: cluster.image=registry.example/sinkflex:tag',
    );
  if (url === undefined || certify === undefined)
    throw new CommandError(
      'SINKFLEX_USAGE',
      'pods do not reach loopback: name this host as they do, cluster.head_host=<name of a service>',
    );
  const { ca, cert, key } = await certify(SERVICE, `*.${SERVICE}.${settings.namespace}.svc`);
  const manifests = parseAllDocuments(readFileSync(MANIFESTS, 'utf8')).map((document) => document.toJS() as Manifest);
  for (const manifest of manifests) {
    manifest.metadata.namespace = settings.namespace;
    if (manifest.kind === 'Secret') {
      const files = { token: tokenFile, 'ca.pem': ca, 'cert.pem': cert, 'key.pem': key };
      (manifest as Secret).data = Object.fromEntries(
        Object.entries(files).map(([name, file]) => [name, Buffer.from(readFileSync(file, 'utf8').trim()).toString('base64')]),
      );
    }
    if (manifest.kind === 'StatefulSet') {
      const { spec } = manifest as StatefulSet;
      const [container] = spec.template.spec.containers;
      spec.replicas = agents.length;
      container!.image = settings.image;
      container!.args[container!.args.indexOf('--join') + 1] = url;
      if (settings.agent_cpus !== null) {
        container!.args.push('--cpus', String(settings.agent_cpus));
        container!.resources.requests.cpu = String(settings.agent_cpus);
      }
    }
  }
  return manifests;
}

export function kubernetesLauncher(settings: ClusterSettings): Launcher {
  return {
    headHost: settings.head_host ?? '127.0.0.1',
    plan: () =>
      Array.from({ length: settings.agents ?? 1 }, (_, i) => ({
        node: `sinkflex-agent-${i}`,
        where: `a pod of ${settings.image}`,
        here: false,
        resources: resourcesOf(settings),
      })),
    async start(agents, head) {
      const manifests = await agentManifests(settings, agents, head);
      const stop = (): Promise<void> => kubectl(['delete', '--ignore-not-found', '--wait=false', '-f', '-'], manifests);
      try {
        await kubectl(['apply', '-f', '-'], manifests);
      } catch (error) {
        await stop().catch(() => {}); // some of them may be there; what failed first is told
        throw error;
      }
      // Pods that die are started again by their StatefulSet.
      return { lost: new Promise<never>(() => {}), stop };
    },
  };
}

/** The manifests go to its standard input: the token is in no argument and no file. */
async function kubectl(words: string[], manifests: readonly Manifest[]): Promise<void> {
  const input = manifests.map((manifest) => stringify(manifest)).join('---\n');
  const { code, errors } = await runToEnd('kubectl', words, { launcher: 'kubernetes', input, timeoutMs: KUBECTL_MS });
  if (code !== 0)
    throw new CommandError('SINKFLEX_LAUNCH', `kubectl ${words.join(' ')} failed: ${errors.trim().split('\n').slice(-3).join(' | ')}`);
}
