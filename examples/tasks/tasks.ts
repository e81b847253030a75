// The tasks of main.ts.
import { currentTask, defineTask, task } from 'sinkflex/runtime';

/** Primes in [from, to), by trial division. */
export const primes = defineTask(import.meta.url, 'primes', (from: number, to: number): Int32Array => {
  const found: number[] = [];
  for (let n = Math.max(2, from); n < to && !currentTask().cancelled; n++) {
    let divisor = 2;
    while (divisor * divisor <= n && n % divisor !== 0) divisor++;
    if (divisor * divisor > n) found.push(n);
  }
  return Int32Array.from(found);
});

/** Calls tasks of its own, which get its processor while it waits for them. */
export const countPrimes = defineTask(import.meta.url, 'countPrimes', async (to: number, parts: number): Promise<number> => {
  const step = Math.ceil(to / parts);
  const found = await Promise.all(Array.from({ length: parts }, (_, i) => task(primes)(i * step, Math.min(to, (i + 1) * step))));
  return found.reduce((sum, part) => sum + part.length, 0);
});

export const unreliable = defineTask(import.meta.url, 'unreliable', (good: number): string => {
  const { attempt } = currentTask();
  if (attempt < good) process.exit(1); // ends the process that runs it
  return `attempt ${attempt}`;
});

export const powers = defineTask(import.meta.url, 'powers', function* (base: number): Generator<number, void> {
  for (let power = 1; ; power *= base) yield power;
});
