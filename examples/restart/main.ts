// Kills an actor's process under a call and watches it come back.
//   npm run build && node dist/examples/restart/main.js
import { isSinkflexError } from 'sinkflex/kernels';
import { init, onActorChange, shutdown, spawn } from 'sinkflex/runtime';
import { Worker } from './actors.ts';

await init();
onActorChange((a) => console.log(`${a.name}: ${a.state}, incarnation ${a.incarnation}`));

const worker = spawn(Worker, { name: 'worker', maxRestarts: 3, maxConcurrency: 2 });
const first = await worker.who();

const waiting = worker.wait().catch((error: unknown) => error);
await worker.who(); // calls of one caller start in order: wait() is under way
process.kill(first.pid, 'SIGKILL');

const error = await waiting;
if (!isSinkflexError(error)) throw error;
console.log(error.code, error.details?.signal, `may have run: ${error.details?.mayHaveRun}`);

const second = await worker.who(); // made while it is down: waits for the next incarnation
console.log(`incarnation ${first.incarnation} -> ${second.incarnation}, another process: ${first.pid !== second.pid}`);

await shutdown();
