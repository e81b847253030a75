// Amounts of resources as integers, so that sums come out exactly: steps of 1/10000, memory in whole bytes (1/10000 of a byte means nothing
// and would leave the exact integers of a double at 838 GiB).

/** Steps in one processor, GPU or unit of a custom resource. */
export const STEPS = 10_000;

const stepsOf = (name: string): number => (name === 'memory' ? 1 : STEPS);

/** What is asked for: rounded up to whole bytes, to the nearest step else. */
export function toAmount(name: string, value: number): number {
  return name === 'memory' ? Math.ceil(value) : Math.round(value * STEPS);
}

export function fromAmount(name: string, amount: number): number {
  return amount / stepsOf(name);
}

/** A request as the index and the pools want it. Names are sorted, amounts above 0. */
export interface Needs {
  readonly names: readonly string[];
  readonly amounts: readonly number[];
  /** Whole GPUs, and the part of one more (steps) that may be shared. */
  readonly whole: number;
  readonly part: number;
}

export function needsOf(resources: Readonly<Record<string, number>>): Needs {
  const names: string[] = [];
  const amounts: number[] = [];
  for (const name of Object.keys(resources).sort()) {
    const amount = toAmount(name, resources[name]!);
    if (amount <= 0) continue;
    names.push(name);
    amounts.push(amount);
  }
  const at = names.indexOf('gpus');
  const gpus = at < 0 ? 0 : amounts[at]!;
  return { names, amounts, whole: Math.floor(gpus / STEPS), part: gpus % STEPS };
}

/** All of them on one node. GPUs are checked one by one later; here whoever fits the largest piece may be asked. */
export function sumOf(all: readonly Needs[]): Needs {
  const sum = new Map<string, number>();
  let whole = 0;
  let part = 0;
  for (const needs of all) {
    for (let i = 0; i < needs.names.length; i++) sum.set(needs.names[i]!, (sum.get(needs.names[i]!) ?? 0) + needs.amounts[i]!);
    whole = Math.max(whole, needs.whole);
    part = Math.max(part, needs.part);
  }
  const names = [...sum.keys()].sort();
  return { names, amounts: names.map((name) => sum.get(name)!), whole, part };
}

export function needsToResources(needs: Needs): Record<string, number> {
  const resources: Record<string, number> = {};
  for (let i = 0; i < needs.names.length; i++) resources[needs.names[i]!] = fromAmount(needs.names[i]!, needs.amounts[i]!);
  return resources;
}
