// The driver of the fault suite, a process of its own: does the job while a plan of faults is carried out, and says in one JSON line what came
// of it. `node job.js <address> <token file> <order>`.
import { readFileSync } from 'node:fs';
import {
  type ActorHandle,
  type FaultPlanInput,
  type FaultReport,
  init,
  injectFaults,
  ready,
  shutdown,
  spawn,
  withOptions,
} from '../../runtime/index.ts';
import { Book, type Books, Grinder } from './actors.ts';

export interface JobOrder {
  plan: FaultPlanInput;
  /** The job goes on until all is got over, and for at least so long: until the plan has begun its last fault. */
  leastMs: number;
  /** Of a worker. */
  maxRestarts: number;
  /** Of a call. */
  timeoutMs: number;
  /** Bytes that go with each entry. */
  ballast: number;
  /** May workers go to another node? */
  soft: boolean;
}

export interface JobResult {
  items: number;
  sum: number;
  books: Books;
  report: FaultReport;
  /** The longest that a call took: until its worker answered, wherever it was by then. */
  slowestMs: number;
}

const WORKERS = ['east', 'west', 'east', 'west'];
const ITEMS_A_STEP = 20;
const LEAST_STEPS = 8;
const CALLS = 8;

type Grinding = ActorHandle<{ grind(item: number): Promise<number> }>;

async function work(order: JobOrder): Promise<JobResult> {
  const book = spawn(Book, { name: 'book', strategy: { node: 'home' }, maxConcurrency: 100 });
  const workers = WORKERS.map((node, i) =>
    spawn(Grinder, {
      name: `grinder-${i}`,
      args: [book, order.ballast],
      strategy: { node, soft: order.soft },
      maxRestarts: order.maxRestarts,
      restartBackoffMs: 10,
      maxConcurrency: CALLS,
    }),
  );
  await Promise.all([ready(book), ...workers.map((worker) => ready(worker, { timeoutMs: 20_000 }))]);
  const faults = await injectFaults(order.plan);
  process.stdout.write(`${JSON.stringify({ began: true })}\n`);
  const began = performance.now();
  let report: FaultReport | undefined;
  let ending: Promise<void> | undefined;
  let items = 0;
  let sum = 0;
  let slowestMs = 0;
  const grind = async (item: number): Promise<void> => {
    const worker = withOptions(workers[item % workers.length] as Grinding, { maxRetries: 100, timeoutMs: order.timeoutMs });
    const from = performance.now();
    const value = await worker.grind(item);
    sum += value;
    slowestMs = Math.max(slowestMs, performance.now() - from);
  };
  for (let step = 1; report === undefined || step < LEAST_STEPS; step++) {
    faults.step(step);
    const wave = Array.from({ length: ITEMS_A_STEP }, (_, i) => grind(items + i));
    items += ITEMS_A_STEP;
    await Promise.all(wave);
    await new Promise((resolve) => setTimeout(resolve, 20));
    if (step >= LEAST_STEPS && performance.now() - began >= order.leastMs) {
      ending ??= faults.end().then((done) => {
        report = done;
      });
    }
  }
  await ending;
  const books = await book.books();
  return { items, sum, books, report: report!, slowestMs: Math.round(slowestMs) };
}

const [, , address = '', tokenFile = '', orderFile = '', listen] = process.argv;
const order = JSON.parse(readFileSync(orderFile, 'utf8')) as JobOrder;
let said: object;
try {
  await init({ address, ...(tokenFile === '-' ? {} : { tokenFile }), ...(listen === undefined ? {} : { listen }) });
  said = await work(order);
} catch (error) {
  said = { code: (error as { code?: string }).code ?? 'untyped', message: (error as Error).message };
}
await shutdown({ timeoutMs: 2000 }).catch((error) => {
  said = { ...said, code: 'shutdown', message: (error as Error).message };
});
process.stdout.write(`${JSON.stringify(said)}\n`);
process.exit(0);
