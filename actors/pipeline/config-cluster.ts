// Settings of runs over several hosts: a cluster that runs already, or one that `launch` starts for the run.
import { z } from 'zod';
import { count, key, positive, section } from './config-key.ts';

/** Who brings the agents of a cluster that is started for a run. */
export const launchers = ['local', 'ssh', 'slurm', 'kubernetes', 'manual'] as const;

export const clusterSettings = section({
  address: key(
    z.string().min(1).nullable(),
    null,
    '',
    'folder (or URL) of a running head: rollouts and environments run on the other hosts of its cluster; null keeps all in this process and its children, unless a launcher starts a cluster',
  ),
  token_file: key(z.string().min(1).nullable(), null, 'path', 'token of a cluster on another host; null takes SINKFLEX_TOKEN_FILE'),
  listen: key(z.string().min(1).nullable(), null, 'host:port', 'where other hosts find the workers of this one'),
  tls_ca: key(z.string().min(1).nullable(), null, 'path', 'who may have signed the certificates of other hosts'),
  tls_cert: key(z.string().min(1).nullable(), null, 'path', 'certificate of this host'),
  tls_key: key(z.string().min(1).nullable(), null, 'path', 'key of that certificate'),
  launcher: key(
    z.enum(launchers).nullable(),
    null,
    '',
    'starts a head and agents for the run, and ends them with it: local, ssh, slurm, kubernetes, or manual (waits for agents that are started by hand); null: none',
  ),
  agents: key(
    count().nullable(),
    null,
    'agents',
    'agents beside the one of the trainer that the launcher brings or waits for; null: local and kubernetes 1, manual 1, ssh one a host, slurm one a node',
  ),
  max_agents: key(
    count().nullable(),
    null,
    'agents',
    'up to so many while actors wait for room, where the launcher can bring more (local); null: no more than agents',
  ),
  agent_cpus: key(positive().nullable(), null, 'cores', 'processors that each agent offers; null: what its host has'),
  hosts: key(z.array(z.string().min(1)), [], '', 'ssh: [user@]host or [user@]host:port, one agent each'),
  ssh_options: key(z.array(z.string().min(1)), [], '', 'ssh: further words of the command ssh, such as -i and a key'),
  node_path: key(z.string().min(1), 'node', '', 'ssh: the program node on the other hosts'),
  image: key(z.string().min(1).nullable(), null, '', 'kubernetes: image that holds this package and the model'),
  namespace: key(z.string().min(1), 'default', '', 'kubernetes: namespace'),
  head_host: key(
    z.string().min(1).nullable(),
    null,
    '',
    'name or address of this host, as the agents reach it; null: local and manual this host alone, slurm the first node, else the name of this host',
  ),
  head_port: key(z.int().min(0).max(65_535), 0, '', 'port of the head; 0: any free one'),
  wait_s: key(positive(), 120, 's', 'for the agents to join'),
});
