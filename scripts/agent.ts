// `sinkflex agent`: a node of a cluster, as a process of its own.
import { resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { joinHead } from '../runtime/index.ts';
import { defaultFolder } from './head.ts';
import { type HostFlags, hostOptions, onEndWanted, withHostOptions } from './host-options.ts';
import { pair } from './option-values.ts';

interface Flags extends HostFlags {
  tokenFile?: string;
  join: string;
  node?: string;
  cpus?: number;
  gpus?: number;
  memory?: number;
  resource: Record<string, string>;
  label: Record<string, string>;
  program: string[];
  sharedWorkers?: number;
  objectStoreMemory?: number;
  spillFolder?: string;
  drainMs: number;
  timeline?: boolean;
  json?: boolean;
}

function amount(text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0) throw new InvalidArgumentError('a number of at least 0');
  return value;
}

export function agentCommand(): Command {
  const command = new Command('agent')
    .summary('make this machine a node of a cluster')
    .description(
      'Runs in the foreground. Starts and watches the workers that the head wants here; they die with it. SIGTERM or Ctrl-C drains the node: nothing ' +
        'more is placed here, actors that may be restarted move, the rest ends at the deadline. A second signal ends it at once.',
    )
    .option('--join <address>', 'folder of the head, or wss://host:port where it listens (ws:// on loopback)', defaultFolder())
    .option('--token-file <path>', 'token of a cluster on another host (or SINKFLEX_TOKEN_FILE, SINKFLEX_TOKEN)')
    .option('--node <name>', 'name of the node; default the host name and something unique')
    .option('--cpus <n>', 'processors for placement; default all', amount)
    .option('--gpus <n>', 'GPUs for placement; default those found', amount)
    .option('--memory <bytes>', 'memory for placement; default what is free', amount)
    .option('--resource <name=amount>', 'another amount that this node has (repeatable)', pair, {})
    .option('--label <name=value>', 'a label of this node (repeatable)', pair, {})
    .option(
      '--program <folder>',
      'package whose actors run here, if it is elsewhere on the host of the driver (repeatable)',
      (folder, all: string[]) => [...all, folder],
      [],
    )
    .option('--shared-workers <n>', "processes for actors with isolation 'shared'", amount)
    .option('--object-store-memory <bytes>', 'shared memory for large values; default 30 % of the machine', amount)
    .option('--spill-folder <path>', 'where values go that memory has no room for; default a folder of its own in that of the head')
    .option('--drain-ms <ms>', 'time for actors to move when the node is drained', amount, 30_000)
    .option('--timeline', 'record calls, for sinkflex timeline')
    .option('--json', 'say what it is as one JSON object')
    .action(async (o: Flags) => {
      const { join: address, node, cpus, gpus, memory, sharedWorkers, objectStoreMemory, spillFolder } = o;
      const resources = Object.fromEntries(Object.entries(o.resource).map(([name, text]) => [name, Number(text)]));
      const agent = await joinHead({
        address,
        labels: o.label,
        programs: o.program,
        resources,
        timeline: o.timeline === true,
        ...hostOptions(o),
        ...(o.tokenFile === undefined ? {} : { tokenFile: o.tokenFile }),
        ...(node === undefined ? {} : { node }),
        ...(cpus === undefined ? {} : { cpus }),
        ...(gpus === undefined ? {} : { gpus }),
        ...(memory === undefined ? {} : { memory }),
        ...(sharedWorkers === undefined ? {} : { sharedWorkers }),
        ...(objectStoreMemory === undefined ? {} : { objectStoreMemory }),
        ...(spillFolder === undefined ? {} : { spillFolder: resolve(spillFolder) }),
      });
      process.stdout.write(o.json ? `${JSON.stringify({ node: agent.node, pid: process.pid })}\n` : `node ${agent.node} of ${address}\n`);
      let draining = false;
      onEndWanted(o, (by) => {
        if (draining) process.exit(130); // its workers die with it
        draining = true;
        if (by === 'signal') process.stderr.write('draining (again: at once)\n');
        void agent.drain({ timeoutMs: o.drainMs });
      });
      const why = await agent.ended;
      if (why === 'head lost') process.stderr.write(`sinkflex: the head of ${address} did not come back\n`);
      process.exitCode = why === 'head lost' ? 1 : 0;
      if (o.attended) process.stdin.destroy();
    });
  return withHostOptions(command, 'where workers of other hosts find those of this one; default a free port if the head is on loopback');
}
