// Worker threads of this process.
import { Worker } from 'node:worker_threads';
import type { FromAgent, ToAgent } from '../control/index.ts';
import { type CarrierEvents, type CarrierOptions, entryUrl, STDERR_GRACE_MS, type WorkerCarrier } from './carrier.ts';
import { OutputLines } from './output.ts';

export function startThread(options: CarrierOptions, events: CarrierEvents): WorkerCarrier {
  const entry = entryUrl('../worker/thread-main');
  // Flags of the process hold in its threads anyway; loaders would be started again in each, so only where they are needed.
  const needsLoader = /\.[cm]?tsx?$/.test(entry.pathname) || /\.[cm]?tsx?$/.test(options.module);
  const flags = needsLoader ? {} : { execArgv: process.execArgv.filter((flag) => flag === '--enable-source-maps') };
  const worker = new Worker(entry, {
    ...flags,
    workerData: options.birth,
    stdout: true,
    stderr: true,
    name: options.label,
  });
  let error: unknown;
  let over = false;
  const stderr = new OutputLines(
    worker.stderr,
    (line) => events.onLine('stderr', line),
    () => {},
  );
  new OutputLines(
    worker.stdout,
    (line) => events.onLine('stdout', line),
    () => {},
  );
  worker.on('error', (cause) => {
    error = cause;
  });
  worker.on('message', (message: ToAgent) => events.onMessage(message));
  worker.on('exit', (exitCode) => {
    const report = (): void => {
      if (over) return;
      over = true;
      events.onEnd({ exitCode, lastStderr: stderr.last, ...(error === undefined ? {} : { error }) });
    };
    if (stderr.ended) report();
    else setTimeout(report, STDERR_GRACE_MS);
  });
  return {
    pid: process.pid,
    send(message: FromAgent) {
      worker.postMessage(message);
    },
    destroy() {
      void worker.terminate();
    },
  };
}
