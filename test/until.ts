// Waiting in tests: for what should come to be, never for a time.

/** Far longer than anything waited for takes on a machine at rest: a busy one must not fail a test. */
export const PATIENCE_MS = 60_000;

/** The next turn; after many, with a pause, so that what is waited for gets the processor. */
const turn = (n: number): Promise<void> => new Promise((resolve) => (n < 200 ? setImmediate(resolve) : setTimeout(resolve, 2)));

/** Waits for a condition; throws with its name when the time is up. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, withinMs = PATIENCE_MS): Promise<void> {
  const end = Date.now() + withinMs;
  for (let n = 0; !(await condition()); n++) {
    if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`);
    await turn(n);
  }
}

/** Looks until what is seen is as wanted; the last that was seen when the time is up, for the test to say what is wrong with it. */
export async function lookUntil<T>(look: () => T | Promise<T>, wanted: (seen: T) => boolean, withinMs = PATIENCE_MS): Promise<T> {
  const end = Date.now() + withinMs;
  for (let n = 0; ; n++) {
    const seen = await look();
    if (wanted(seen) || Date.now() > end) return seen;
    await turn(n);
  }
}
