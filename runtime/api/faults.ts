// Faults on purpose, for tests and for `sinkflex launch --faults`.
import { systemClock } from '../control/index.ts';
import type { FaultInput, FaultPlan, FaultPlanInput, FaultReport } from '../faults/index.ts';
import { checkKnown, checkTimeout } from './check.ts';
import { driver } from './run.ts';

export type { FaultInput, FaultPlan, FaultPlanInput, FaultReport, Injected } from '../faults/index.ts';

export interface InjectOptions {
  /** Start a head, or the agent of a node, again: without them the fault `restart` is refused for these. */
  start?: { head?: () => Promise<void>; agent?: (node: string) => Promise<void> };
}

/** A plan that is being carried out. */
export interface Faults {
  /** The job has done so many steps: what is planned for then happens. */
  step(done: number): void;
  /** One more fault, now; resolves when it was injected. What it says of when is not looked at. */
  now(fault: FaultInput): Promise<void>;
  /** Nothing more is injected. Resolves when all has recovered, or would not in the time (default 90 s). */
  end(options?: { timeoutMs?: number }): Promise<FaultReport>;
}

/**
 * Carries out a plan of faults against the run of this program: kill, stop, slow or restart actors, agents and the head, spoil links, cut hosts
 * off, fill disks. Same plan and seed, same choices. docs/faults.md lists the faults.
 *
 * @example
 * const faults = await injectFaults({ seed: 7, faults: [{ fault: 'kill', target: { actor: 'rollout-*' }, every: '10s' }] });
 * await work();
 * const report = await faults.end();
 */
export async function injectFaults(plan: FaultPlanInput, options: InjectOptions = {}): Promise<Faults> {
  checkKnown('injectFaults', options, { start: true });
  if (options.start !== undefined) checkKnown('start of injectFaults', options.start, { head: true, agent: true });
  const { FaultInjector, parseFaults } = await import('../faults/index.ts'); // not for workers, which import this file too
  const run = driver();
  const injector = new FaultInjector(parseFaults(plan), {
    listActors: () => run.listActors(),
    ask: (ask) => run.session.ask(ask),
    restartActor: (id) => run.session.kill(id, { restart: true, drain: true, graceMs: 0 }),
    alone: run.head !== undefined,
    start: options.start,
    clock: systemClock,
  });
  return {
    step: (done) => injector.step(done),
    async now({ at, every, step, everyStep, ...fault }) {
      await injector.now(parseFaults({ faults: [{ ...fault, at: 0 } as FaultInput] }).faults[0]!);
    },
    end: (given = {}) => injector.end(checkTimeout('end of faults', given)),
  };
}

/** What is read from a file: a plan, or SINKFLEX_BAD_FAULTS with the place of the mistake. */
export async function checkFaultPlan(plan: unknown): Promise<FaultPlan> {
  return (await import('../faults/index.ts')).parseFaults(plan);
}

/** The report as text, a fault a line. */
export async function faultReportText(report: FaultReport): Promise<string> {
  return (await import('../faults/index.ts')).faultText(report);
}
