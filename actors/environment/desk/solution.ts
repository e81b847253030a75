/** The reference solution of a task: the steps that the rules call for, and the end of the world when they are replayed. */
import { type DeskTask, halfOf } from './task.ts';
import { COLOURS, STANDINGS, type ToolName, type Treatment } from './words.ts';
import { DeskWorld, type UserRequest } from './world.ts';

export type ReferenceStep =
  | { by: 'user'; request: UserRequest; dock?: number }
  | { by: 'agent'; tool: ToolName; args: Record<string, unknown> };

export interface Solution {
  steps: ReferenceStep[];
  /** What the agent must say at the end; undefined where the caller is to be transferred. */
  told: number | undefined;
  /** Hash of the world after the steps. */
  hash: string;
}

/** What a treatment comes to for a ride of that cost. */
export function amountOf(treatment: Treatment, cost: number, flat: number): number {
  switch (treatment) {
    case 'full':
      return cost;
    case 'half':
      return halfOf(cost);
    case 'flat':
      return flat;
    case 'none':
    case 'transfer':
      return 0;
  }
}

export function solve(task: DeskTask): Solution {
  const { steps, told } = plan(task);
  const world = new DeskWorld(task);
  for (const step of steps) {
    if (step.by === 'user') world.user(step.request, step.dock);
    else world.tool(step.tool, step.args);
  }
  return { steps, told, hash: world.hash() };
}

function plan(task: DeskTask): { steps: ReferenceStep[]; told: number | undefined } {
  const rider = task.riders[task.caller]!;
  const ride = task.rides[task.caller]!;
  const treatment = task.treatments[STANDINGS.indexOf(rider.standing)]!;
  if (treatment === 'transfer') return { steps: [{ by: 'agent', tool: 'transfer', args: {} }], told: undefined };

  const steps: ReferenceStep[] = [];
  if (!task.bluetooth) steps.push({ by: 'user', request: 'bluetooth' });
  if (task.docks[task.bikes[task.caller]!.dock - 1] === 0) {
    steps.push({ by: 'user', request: 'walk', dock: 1 + task.docks.findIndex((free) => free > 0) });
  }
  steps.push({ by: 'user', request: 'latch' });
  steps.push({ by: 'agent', tool: 'lock', args: { bike: ride.bike } });
  steps.push({ by: 'agent', tool: 'end_ride', args: { ride: ride.id } });

  const condition = task.lights[COLOURS.indexOf(task.colour)]!;
  if (!task.wantsRefund || condition === 'fine') return { steps, told: 0 };
  steps.push({ by: 'agent', tool: 'flag', args: { bike: ride.bike, part: condition } });
  const amount = amountOf(treatment, ride.cost, task.flat);
  if (amount > 0) steps.push({ by: 'agent', tool: 'refund', args: { ride: ride.id, amount: String(amount) } });
  return { steps, told: amount };
}
