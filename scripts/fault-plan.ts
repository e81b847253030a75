// A plan of faults from a YAML file. What it says is checked here, before anything is started.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { checkFaultPlan, type FaultPlanInput, RuntimeFailure } from '../runtime/index.ts';

export async function readFaultPlan(path: string): Promise<FaultPlanInput> {
  let plan: unknown;
  try {
    plan = parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw new RuntimeFailure('SINKFLEX_BAD_FAULTS', `${path}: ${(cause as Error).message}`, { cause });
  }
  return checkFaultPlan(plan);
}
