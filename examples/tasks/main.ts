// Functions in threads and processes: parallel work, tasks that call tasks, retries, cancelling, streams.
//   npm run build && node dist/examples/tasks/main.js
import { cancel, init, shutdown, task } from 'sinkflex/runtime';
import { countPrimes, powers, primes, unreliable } from './tasks.ts';

await init();

const first = task(primes)(0, 20);
console.log([...(await first)].join(' '));
console.log(await task(countPrimes)(100_000, 8));

// What a task ends under is made again elsewhere, up to maxRetries.
console.log(await task(unreliable, { isolation: 'process', maxRetries: 2 })(2));

// A loop sees the flag of its cancel, although it gives the event loop no turn.
const long = task(primes)(0, 2_000_000_000);
setTimeout(() => cancel(long), 50);
console.log(await long.catch((error: unknown) => (error as Error).message));

const seen: number[] = [];
for await (const power of task(powers)(2)) {
  seen.push(power);
  if (power > 500) break;
}
console.log(seen.join(' '));

await shutdown();
