// A thread in every worker process that has lived for a moment: tells what the main thread is executing, also when that is a loop that
// never turns. Listens for whoever knows the token of the run, and costs nothing until somebody asks.
import { Session } from 'node:inspector';
import { workerData } from 'node:worker_threads';
import { type InspectorMessage, sampleStack } from '../observe/stack-sample.ts';
import { listen } from '../wire/socket.ts';

const { folder, token, worker, waitMs } = workerData as { folder: string; token: Uint8Array; worker: number; waitMs: number };

async function look(): Promise<unknown> {
  const session = new Session();
  session.connectToMainThread();
  let tell: (message: InspectorMessage) => void = () => {};
  session.on('inspectorNotification', (message: InspectorMessage) => tell(message));
  try {
    return await sampleStack(
      {
        post: (method) => session.post(method, () => tell({})),
        onMessage: (listener) => {
          tell = listener;
        },
      },
      waitMs,
    );
  } finally {
    session.disconnect();
  }
}

/** One debugger at a time; who asks meanwhile gets the same answer. */
let looking: Promise<unknown> | undefined;

await listen(folder, Buffer.from(token), worker, (_caller, transport) => {
  transport.open(
    () => {},
    () => {},
  );
  looking ??= look().finally(() => {
    looking = undefined;
  });
  looking.then(
    (sample) => {
      transport.write([Buffer.from(`${JSON.stringify(sample)}\n`)]);
      transport.close();
    },
    () => transport.close(),
  );
});
