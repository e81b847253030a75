/** The domains as entries of the registry. */
import { validationTask } from '../seeds.ts';
import type { EnvironmentEntry } from '../types.ts';
import { makeUser, SOLO } from '../user/index.ts';
import { tau2Data } from './data.ts';
import type { DomainName } from './domain.ts';
import { Tau2Environment } from './environment.ts';
import { readOptions } from './options.ts';
import { basisText, doNothingRate, doNothingScore, referenceScore } from './score.ts';

const SUMMARIES: Record<DomainName, string> = {
  retail: 'tau2-bench retail: 114 tasks of an online shop, 16 tools',
  airline: 'tau2-bench airline: 50 tasks of flight bookings, 14 tools; doing nothing solves 23',
  telecom: 'tau2-bench telecom: technical support with dual control, 13 tools of the agent and 30 of the user',
  mock: 'tau2-bench mock: a to-do list, for plumbing',
};

function entryOf(domain: DomainName): EnvironmentEntry {
  const name = `tau2-${domain}`;
  /** The task that a seed stands for, as an episode would draw it. */
  const scored =
    (score: typeof doNothingScore) =>
    (seed: number, options: Record<string, unknown> = {}) => {
      const o = readOptions(name, options);
      const data = tau2Data(o.data, domain);
      return score(data, Tau2Environment.taskOf(data, o, seed).task, o.fixes);
    };
  return {
    name,
    summary: SUMMARIES[domain],
    create: (options) => new Tau2Environment(domain, options),
    validationSeeds(options = {}) {
      const o = readOptions(name, options);
      const data = tau2Data(o.data, domain);
      const { split } = Tau2Environment.taskOf(data, o, validationTask(0));
      const ids = o.task === undefined ? Tau2Environment.tasksOf(data, o, split) : [o.task];
      // The first seed that draws each: about n ln n draws.
      const seeds = new Map<string, number>();
      for (let i = 0; seeds.size < ids.length; i++) {
        const seed = validationTask(i);
        const { id } = Tau2Environment.taskOf(data, o, seed).task;
        if (!seeds.has(id)) seeds.set(id, seed);
      }
      return ids.map((id) => seeds.get(id)!);
    },
    labels(options = {}) {
      const o = readOptions(name, options);
      const data = tau2Data(o.data, domain);
      const { task, split } = Tau2Environment.taskOf(data, o, validationTask(0));
      const user = makeUser(o.user, o.userOptions);
      return {
        benchmark: name,
        'task version': data.version,
        split,
        'reward basis': basisText(task, o.judge !== undefined),
        user: user?.kind ?? SOLO,
        ...(domain === 'telecom' ? { policy: o.policy } : {}),
        fixes: [...o.fixes].join(',') || 'none',
        'doing nothing solves': doNothingRate(data, o.task === undefined ? Tau2Environment.tasksOf(data, o, split) : [o.task], o.fixes),
      };
    },
    baselines: { 'do nothing': scored(doNothingScore), reference: scored(referenceScore) },
  };
}

export const tau2Entries: readonly EnvironmentEntry[] = (['retail', 'airline', 'telecom', 'mock'] as const).map(entryOf);
