// A run on a head of its own: this process is only a driver. It may lose the head for a while: calls go on, what it asks of the head waits.
import { nanoid } from 'nanoid';
import { os } from '../../kernels/host.ts';
import type { FromAgent, FromHead, ToAgent } from '../control/index.ts';
import {
  Directory,
  Guests,
  HeadConnection,
  openPlace,
  type PlaceOptions,
  RouteAsker,
  type Subscriber,
  WorkerNumbers,
} from '../node/index.ts';
import { makeHostStore } from '../objects/index.ts';
import { answer, record, replyTo, stopRecording, stopWatchingLoop, watchLoop } from '../observe/worker-state.ts';
import { Session } from '../worker/index.ts';
import { ActorMirror } from './actor-mirror.ts';
import { RuntimeFailure } from './errors.ts';
import type { CheckedInit } from './options.ts';
import type { Run } from './run.ts';

const ATTACH_MS = 10_000;
/** A head that is away for longer will not come back: what the driver waits for fails. */
const PATIENCE_MS = 60_000;

export async function attachRun(where: PlaceOptions, checked: CheckedInit): Promise<Run> {
  const place = openPlace(where);
  const { folder, token } = place;
  const store = makeHostStore(checked.objectStoreMemory, folder, checked.spillFolder);
  const driver = nanoid();
  const mirror = new ActorMirror();
  let session: Session | undefined;
  let attached: ((worker: number) => void) | undefined;
  const end = (why?: string): void => {
    if (why !== undefined) process.stderr.write(`[sinkflex] this driver is cut off: ${why}\n`);
    session?.close();
    connection.close();
  };
  const connection: HeadConnection = new HeadConnection({
    connect: () => place.connect(),
    patienceMs: PATIENCE_MS,
    onUp() {
      const host = way === undefined ? {} : { host: way.info(numbers.given) };
      connection.send({ t: 'attach', driver, pid: process.pid, processStart: os.processStartTime(process.pid) ?? '', ...host });
      connection.send({ t: 'watch' });
      directory.again();
    },
    onMessage(message: FromHead) {
      switch (message.t) {
        case 'attached':
          attached?.(message.worker);
          // Another number: the head has given this driver up, and ended what it owned.
          if (session !== undefined && message.worker !== session.worker) end('the head had given it up');
          return;
        case 'info':
          mirror.changed(message.info);
          return;
        case 'query': {
          const { worker, request, question } = message;
          if (session !== undefined && question.ask !== 'workers' && question.ask !== 'stack' && question.ask !== 'fault')
            connection.send({ ...replyTo(request, () => answer(session!, question)), worker });
          return;
        }
        case 'shutdown':
          end();
          return;
        case 'numbers':
          numbers.add(message.first, message.last);
          for (const each of joining.splice(0)) session?.link.send(each);
          return;
        case 'dial':
        case 'host-gone':
          way?.heard(message);
          if (message.t === 'host-gone') session?.onAgent(message);
          return;
        case 'spawned':
        case 'place':
        case 'killed':
        case 'answer':
          directory.onHead(message);
          return;
      }
    },
    onLost: () => end(`the head of ${place.name} did not come back`),
  });
  const directory = new Directory(connection);
  const numbers = new WorkerNumbers(() => connection.send({ t: 'numbers' }));
  const asker = new RouteAsker((message, from) => directory.receive(message, from));
  const way = place.way(store.birth, (worker, host, url) => asker.route(worker, host, url));
  const leave = (): void => {
    connection.close();
    way?.close();
    store.close();
    place.close();
  };
  const joining: Extract<ToAgent, { t: 'guest-join' }>[] = [];
  let timer: NodeJS.Timeout | undefined;
  const worker = await new Promise<number>((resolve, reject) => {
    attached = resolve;
    timer = setTimeout(
      () => reject(new RuntimeFailure('SINKFLEX_NO_HEAD', `the head of ${place.name} did not answer within ${ATTACH_MS} ms`)),
      ATTACH_MS,
    );
    (way?.open() ?? Promise.resolve()).then(() => connection.open()).catch((cause) => reject(place.noHead(cause)));
  }).catch((error) => {
    clearTimeout(timer);
    leave();
    throw error;
  });
  clearTimeout(timer);
  const own = new Session(
    {
      worker,
      folder,
      token,
      maxInFlightBytes: checked.maxInFlightBytes,
      channels: checked.channels,
      store: store.birth,
      noRelay: true,
      ...(way === undefined ? {} : { gateway: way.socket, direct: way.direct }),
    },
    {
      send: (message) => receive(message, self),
    },
  );
  // Threads of its tasks take part through it.
  const guests = new Guests(directory);
  const receive = (message: ToAgent, from: Subscriber): void => {
    switch (message.t) {
      case 'spawn':
      case 'resolve':
      case 'kill':
      case 'ask':
        directory.receive(message, from);
        return;
      case 'guest-join':
        if (numbers.empty) {
          joining.push(message);
          connection.send({ t: 'numbers' });
        } else guests.join(numbers.next(), from, message.request);
        return;
      case 'guest-left':
        guests.left(message.worker, from);
        return;
      case 'guest': {
        const guest = guests.unwrap(message, from);
        if (guest !== undefined) receive(message.message, guest);
        return;
      }
    }
  };
  const self = { worker, send: (message: FromAgent) => own.onAgent(message) };
  session = own;
  watchLoop();
  if (checked.timeline) record();
  return {
    session: own,
    folder,
    owner: `driver/${worker}`,
    head: undefined,
    agent: undefined,
    listActors: () => mirror.list(),
    onActorChange: (listener) => mirror.onChange(listener),
    nameTaken: () => false,
    async close(timeoutMs) {
      try {
        // A head that is away finds out by itself that this driver has gone.
        if (own.closed || !connection.up) return;
        let late: NodeJS.Timeout | undefined;
        const left = own.ask({ q: 'leave', driver, timeoutMs });
        await Promise.race([left, new Promise<void>((resolve) => (late = setTimeout(resolve, timeoutMs + 1000)))]);
        clearTimeout(late);
      } finally {
        stopWatchingLoop();
        stopRecording();
        own.close();
        leave();
      }
    },
    onExit() {
      store.close();
      place.close();
    },
  };
}
