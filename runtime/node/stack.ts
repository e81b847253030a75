// The agent's side of looking at a worker's stack: a process has a thread that can tell; a thread is asked through this process's inspector.
import { Session } from 'node:inspector';
import { type InspectorMessage, STACK_WAIT_MS, type StackSample, sampleStack, stackFolder } from '../observe/stack-sample.ts';
import { connect } from '../wire/index.ts';

const SILENT: StackSample = { state: 'silent', frames: [] };
const MAX_BYTES = 256 * 1024;

/** The thread of a worker process that tells is not there in its first second: then it is silent. */
export async function processStack(folder: string, token: Buffer, worker: number, timeoutMs: number): Promise<StackSample> {
  const transport = await connect(stackFolder(folder), token, 0, worker).catch(() => undefined);
  if (transport === undefined) return SILENT;
  return new Promise((resolve) => {
    let text = '';
    const finish = (sample: StackSample): void => {
      clearTimeout(late);
      transport.close();
      resolve(sample);
    };
    const late = setTimeout(() => finish(SILENT), timeoutMs);
    transport.open(
      (chunk) => {
        text += chunk.toString('utf8');
        if (text.length > MAX_BYTES) finish(SILENT);
        else if (text.endsWith('\n')) finish(JSON.parse(text) as StackSample);
      },
      () => finish(SILENT),
    );
  });
}

interface Attached {
  sessionId: string;
  /** `[worker <thread id>] <name>`; its `workerId` is another number. */
  workerInfo: { title: string };
}

/** Of a worker thread of this process. */
export async function threadStack(threadId: number): Promise<StackSample> {
  const session = new Session();
  session.connect();
  const post = (method: string, params: object): void => session.post(method, params as never, () => {});
  try {
    const id = await new Promise<string | undefined>((resolve) => {
      session.on('NodeWorker.attachedToWorker' as never, ({ params }: { params: Attached }) => {
        if (params.workerInfo.title.startsWith(`[worker ${threadId}]`)) resolve(params.sessionId);
      });
      session.post('NodeWorker.enable' as never, { waitForDebuggerOnStart: false } as never, () => resolve(undefined));
    });
    if (id === undefined) return SILENT;
    let next = 0;
    return await sampleStack(
      {
        post: (method) => post('NodeWorker.sendMessageToWorker', { sessionId: id, message: JSON.stringify({ id: ++next, method }) }),
        onMessage: (listener) => {
          session.on('NodeWorker.receivedMessageFromWorker' as never, ({ params }: { params: { sessionId: string; message: string } }) => {
            if (params.sessionId !== id) return;
            const message = JSON.parse(params.message) as InspectorMessage & { id?: number };
            listener(message.id === 1 ? { method: 'enabled' } : message);
          });
        },
      },
      STACK_WAIT_MS,
    );
  } finally {
    session.post('NodeWorker.disable' as never, () => session.disconnect());
  }
}
