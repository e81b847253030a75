// Suite `env`: tau2-bench's retail domain. Tool calls a second of one core, memory of a thousand environments at once, time of a reset.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Environment, make, median, tau2 } from '../../actors/index.ts';
import { judged, type Suite, type SuiteContext } from './rows.ts';

const ENVIRONMENTS = 1000;

function folder(context: SuiteContext, row: string): string | undefined {
  const shared = resolve(process.env.SINKFLEX_SHARED ?? '../shared');
  const places = [process.env.TAU2_DATA, 'data/tau2/domains', join(shared, 'tau2', 'data')];
  const found = places.find((place) => place !== undefined && existsSync(join(place, 'retail', 'db.json')));
  if (found === undefined)
    context.report({ suite: 'env', row, skipped: 'the data of tau2-bench are not there (sinkflex data tau2, or TAU2_DATA)' });
  return found;
}

const cpuSeconds = (since?: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
};

async function calls(context: SuiteContext): Promise<void> {
  const where = folder(context, 'env.retail.calls');
  if (where === undefined) return;
  const data = tau2.tau2Data(where, 'retail');
  const actions = data.split('base').map((id) => data.task(id).evaluation_criteria?.actions ?? []);
  const count = actions.reduce((n, list) => n + list.length, 0);
  const round = (): number => {
    let seconds = 0;
    for (const list of actions) {
      const session = new tau2.Session(data.domain, { fixes: new Set() });
      const before = process.cpuUsage();
      for (const action of list) session.respond(action);
      seconds += cpuSeconds(before);
    }
    return count / seconds;
  };
  for (let i = 0; i < 20; i++) round();
  const rates = Array.from({ length: context.quick ? 10 : 60 }, round);
  const row = {
    suite: 'env',
    row: 'env.retail.calls',
    unit: 'calls/s',
    ours: median(rates),
    details: { what: 'references of 114 tasks, by CPU time' },
  };
  context.report(judged(row, { least: 20_000 }));
}

async function many(context: SuiteContext): Promise<void> {
  const where = folder(context, 'env.retail.memory');
  if (where === undefined) return;
  const before = process.memoryUsage().rss;
  const all: Environment[] = [];
  const times: number[] = [];
  for (let i = 0; i < ENVIRONMENTS; i++) {
    const environment = make('tau2-retail', { data: where });
    const began = process.cpuUsage();
    await environment.reset({ seed: i });
    times.push(cpuSeconds(began) * 1000);
    await environment.step({ text: '', toolCalls: [{ name: 'list_all_product_types', arguments: {} }], finish: false });
    all.push(environment);
  }
  const grown = (process.memoryUsage().rss - before) / 1e6;
  for (const environment of all) await environment.close();
  context.report(
    judged(
      {
        suite: 'env',
        row: 'env.retail.memory',
        unit: 'MB',
        ours: grown,
        details: { environments: ENVIRONMENTS, resident: process.memoryUsage().rss },
      },
      { most: 600 },
    ),
  );
  context.report(judged({ suite: 'env', row: 'env.retail.reset', unit: 'ms', ours: median(times.slice(100)) }, { most: 1 }));
}

export const environmentSuite: Suite = { 'env.retail.calls': calls, 'env.retail.memory': many };
