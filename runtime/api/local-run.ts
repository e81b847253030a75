// A run whose head and agent live in the driver: all end with it.

import { randomBytes, randomInt } from 'node:crypto';
import { rmSync } from 'node:fs';
import type { FromAgent, PeerLink } from '../control/index.ts';
import { Head } from '../head/index.ts';
import { Agent, HARD_AFTER_MS, makeRunFolder } from '../node/index.ts';
import { makeHostStore } from '../objects/index.ts';
import { MainBroker } from '../wire/index.ts';
import { Session } from '../worker/index.ts';
import type { CheckedInit } from './options.ts';
import type { Run } from './run.ts';
import type { ActorOutput } from './types.ts';

export async function startLocalRun(checked: CheckedInit, onOutput: (line: ActorOutput) => void): Promise<Run> {
  // Not for workers, which import this file too.
  const { Observing } = await import('./observing.ts');
  const folder = makeRunFolder();
  const token = randomBytes(32);
  const observing = new Observing(folder);
  const store = makeHostStore(checked.objectStoreMemory, folder, checked.spillFolder);
  const { sharedWorkers, maxInFlightBytes, channels, warmWorkers, timeline, total, labels } = checked;
  const head = new Head({ seed: randomInt(2 ** 31), lasting: false });
  const link: PeerLink = { send: (message) => agent.onHead(message) };
  const agent: Agent = new Agent(
    {
      node: 'local',
      total,
      labels,
      folder,
      token,
      sharedWorkers,
      maxInFlightBytes,
      channels,
      store: store.birth,
      warmWorkers,
      timeline,
      onOutput(line) {
        observing.line(line);
        onOutput(line);
      },
      onDrain: (graceMs) => void agent.leave(graceMs),
    },
    { send: (message) => head.receive(message, link) },
  );
  agent.join();
  const self = { worker: 0, send: (message: FromAgent) => session.onAgent(message) };
  const session: Session = new Session(
    { worker: 0, folder, token, maxInFlightBytes, channels, store: store.birth },
    { send: (message) => agent.receive(message, self) },
    { broker: new MainBroker(0) },
  );
  return {
    session,
    folder,
    owner: 'driver/0',
    head,
    agent,
    observing,
    listActors: () => head.list(),
    onActorChange: (listener) => head.onActorChange(listener),
    nameTaken: (name) => head.nameTaken(name),
    async close(timeoutMs) {
      try {
        agent.drain();
        await head.close(timeoutMs, Math.max(0, timeoutMs - HARD_AFTER_MS));
        await agent.close();
      } finally {
        observing.close();
        head.stop();
        session.close();
        store.close();
        rmSync(folder, { recursive: true, force: true });
      }
    },
    onExit() {
      observing.close();
      agent.destroy();
      store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
