// Agents on the nodes of an allocation of Slurm. `sinkflex launch` runs in the batch script, on the first node; one step of srun starts the
// agent of each of the others. What torchrun users know holds: SLURM_JOB_NODELIST names the nodes, SLURM_CPUS_PER_TASK and
// SLURM_GPUS_ON_NODE say what each has. The folder of the head's token and certificates must be on a file system that all nodes share
// (TMPDIR decides), as home folders of clusters are.
import { CommandError } from '../errors.ts';
import { resourcesOf, wordsThere } from './agent-words.ts';
import type { ClusterSettings, Launcher, PlannedAgent } from './launcher.ts';
import { ENTRY, runCommand, startTogether } from './processes.ts';

/** `n[01-03,7],m` -> its names, in order. */
export function expandNodeList(text: string): string[] {
  const names: string[] = [];
  for (const part of splitOutside(text)) {
    const match = /^([^[\]]*)(?:\[([^[\]]*)\](.*))?$/.exec(part);
    if (match === null) throw bad(text);
    const [, head = '', ranges, tail = ''] = match;
    if (ranges === undefined) names.push(head);
    else
      for (const middle of ranges.split(',').flatMap((range) => expandRange(range, text)))
        names.push(...expandNodeList(`${head}${middle}${tail}`));
  }
  return names;
}

/** At commas that are in no brackets. */
function splitOutside(text: string): string[] {
  const parts = text.split(/,(?![^[]*\])/).filter((part) => part !== '');
  if (parts.length === 0) throw bad(text);
  return parts;
}

function expandRange(range: string, all: string): string[] {
  const match = /^(\d+)(?:-(\d+))?$/.exec(range);
  if (match === null) throw bad(all);
  const [, first = '', last = first] = match;
  if (Number(last) < Number(first) || Number(last) - Number(first) > 100_000) throw bad(all);
  return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => String(Number(first) + i).padStart(first.length, '0'));
}

const bad = (text: string): CommandError =>
  new CommandError('SINKFLEX_USAGE', `${JSON.stringify(text)} is no list of nodes as Slurm writes it: n[01-03,7],m`);

/** `4(x2),8` -> 4, 4, 8. */
export function expandCounts(text: string): number[] {
  return text.split(',').flatMap((part) => {
    const match = /^(\d+)(?:\(x(\d+)\))?$/.exec(part.trim());
    if (match === null)
      throw new CommandError('SINKFLEX_USAGE', `${JSON.stringify(text)} is no list of counts as Slurm writes it: 4(x2),8`);
    return Array.from({ length: Number(match[2] ?? 1) }, () => Number(match[1]));
  });
}

export function slurmLauncher(settings: ClusterSettings, environment: NodeJS.ProcessEnv = process.env): Launcher {
  const list = environment.SLURM_JOB_NODELIST ?? environment.SLURM_NODELIST;
  if (list === undefined)
    throw new CommandError(
      'SINKFLEX_USAGE',
      'cluster.launcher=slurm belongs into an allocation: start it with sbatch or salloc (SLURM_JOB_NODELIST is not set)',
    );
  const nodes = expandNodeList(list);
  const [first, ...others] = nodes;
  // Of the allocation; a task asks for part of it.
  const cpus = environment.SLURM_JOB_CPUS_PER_NODE === undefined ? [] : expandCounts(environment.SLURM_JOB_CPUS_PER_NODE);
  const task = environment.SLURM_CPUS_PER_TASK;
  const gpus = environment.SLURM_GPUS_ON_NODE ?? environment.SLURM_GPUS_PER_NODE;
  const agent = (node: string): PlannedAgent => {
    const own = task === undefined ? cpus[nodes.indexOf(node)] : Number(task);
    const known = {
      ...(own === undefined ? {} : { cpus: own }),
      ...(gpus === undefined || !/^\d+$/.test(gpus) ? {} : { gpus: Number(gpus) }),
    };
    return { node: `slurm-${node}`, where: node, here: false, resources: resourcesOf(settings, known) };
  };
  const chosen = others.slice(0, settings.agents ?? others.length);
  return {
    headHost: settings.head_host ?? environment.MASTER_ADDR ?? first!,
    plan: () => chosen.map(agent),
    start: (agents, head) =>
      startTogether(agents, async (each) => {
        const tls = await head.certify?.(each.where);
        // A head on loopback has its agents there too.
        const host = tls === undefined ? '127.0.0.1' : each.where;
        const words = wordsThere(each, head, { host, tokenFile: head.tokenFile, tls });
        const step = ['--nodes=1', '--ntasks=1', `--nodelist=${each.where}`, '--overlap', '--kill-on-bad-exit=1', '--input=all'];
        if (each.resources.cpus !== undefined) step.push(`--cpus-per-task=${Math.floor(each.resources.cpus)}`);
        return runCommand('srun', [...step, process.execPath, ENTRY, ...words]);
      }),
  };
}
