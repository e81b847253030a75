// How long a call waits before it is made again after its method threw.

const FIRST_MS = 100;
const LONGEST_MS = 5000;

/** Doubles with each failure; between half of that and all of it, so that callers that failed together do not come back together. */
export function retryDelayMs(failures: number, random: () => number): number {
  return Math.min(FIRST_MS * 2 ** (failures - 1), LONGEST_MS) * (0.5 + random() / 2);
}
