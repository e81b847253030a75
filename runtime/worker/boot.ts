// What every worker does, whatever carries it: opens its listener, hosts the actors that its agent sends, and ends when told.
import { loadDefinition } from '../api/definition.ts';
import type { FromAgent, ToAgent, WorkerBirth } from '../control/index.ts';
import { emulateHere } from '../links/emulation.ts';
import { answer, record, replyTo, watchLoop } from '../observe/worker-state.ts';
import { type Broker, decodeAlone, Encoded, encodeError } from '../wire/index.ts';
import { Circles } from './circles.ts';
import { ActorHost } from './host.ts';
import { guardLease } from './lease-guard.ts';
import { setResident } from './scope.ts';
import { Session } from './session.ts';
import { ticker } from './tick.ts';

/** Of the loop's timer, ten a second: whether calls wait for themselves. */
const TURNS_BETWEEN_LOOKS = 10;
const NO_ARGS = { header: new Uint8Array(), sections: new Uint8Array() };

export interface Carrier {
  /** Sends to the agent; `sent` when it is on its way. */
  send(message: ToAgent, sent?: () => void): void;
  exit(code: number): void;
}

/** What every module of actors imports, while there is still time. */
export async function preload(): Promise<void> {
  await import('../index.ts').catch(() => {}); // whoever imports it next gets the error
}

/** What a spare does while it waits. */
export async function rehearse(folder: string): Promise<void> {
  const { rehearse } = await import('./rehearsal.ts');
  await rehearse(folder).catch(() => {}); // then the first call takes longer
}

export class WorkerLife {
  readonly #birth: WorkerBirth;
  readonly #carrier: Carrier;
  readonly #session: Session;
  #opened: Promise<void>;

  constructor(birth: WorkerBirth, carrier: Carrier, broker?: Broker) {
    this.#birth = birth;
    this.#carrier = carrier;
    this.#session = new Session(birth, { send: (message) => carrier.send(message) }, broker === undefined ? {} : { broker });
    if (birth.lease !== undefined) this.#session.guard = guardLease(birth.lease);
    this.#opened = this.#session.open();
    if (birth.timeline) record();
    const tick = birth.tick === undefined ? undefined : ticker(birth.tick);
    const circles = new Circles(this.#session);
    let turns = 0;
    watchLoop(() => {
      tick?.();
      if (++turns % TURNS_BETWEEN_LOOKS === 0) circles.look();
    });
  }

  onMessage(message: FromAgent): void {
    switch (message.t) {
      case 'start':
        void this.#start(message);
        return;
      case 'stop':
        void this.#stop(message);
        return;
      case 'place':
      case 'killed':
      case 'answer':
      case 'guest':
      case 'guest-joined':
      case 'host-gone':
        this.#session.onAgent(message);
        return;
      case 'emulate':
        emulateHere(message.order);
        return;
      case 'query':
        this.#carrier.send(replyTo(message.request, () => answer(this.#session, message.question)));
        return;
    }
  }

  get #alone(): boolean {
    return this.#birth.isolation !== 'shared';
  }

  async #start({ spec, incarnation, gpus, checkpoint }: Extract<FromAgent, { t: 'start' }>): Promise<void> {
    const host = new ActorHost(spec, incarnation, gpus);
    this.#session.hosts.set(spec.actor, host);
    if (this.#alone) setResident(host.scope);
    try {
      const [definition] = await Promise.all([loadDefinition(spec.module, spec.exportName, spec.definition), this.#opened]);
      for (const url of spec.imports) await import(url);
      const args = decodeAlone(new Encoded(spec.args.header, spec.args.sections)) as unknown[];
      // Equal in all actors of a definition: one copy, however many are hosted here.
      spec.methods = definition.methods as string[];
      spec.args = NO_ARGS;
      await host.start(definition.type as never, args, checkpoint, (state) =>
        this.#carrier.send({ t: 'checkpoint', actor: spec.actor, incarnation, state }),
      );
      if (this.#session.hosts.get(spec.actor) !== host) return; // stopped meanwhile
      this.#carrier.send({ t: 'started', actor: spec.actor, incarnation });
    } catch (error) {
      if (this.#session.hosts.get(spec.actor) !== host) return;
      this.#ended(spec.actor, { t: 'ended', actor: spec.actor, incarnation, reason: 'constructor', error: encodeError(error) });
    }
  }

  async #stop({ actor, incarnation, graceMs, mode }: Extract<FromAgent, { t: 'stop' }>): Promise<void> {
    const host = this.#session.hosts.get(actor);
    if (host?.incarnation !== incarnation) return;
    await host.stop(graceMs, mode);
    this.#ended(actor, { t: 'ended', actor, incarnation, reason: 'killed' });
  }

  #ended(actor: number, message: Extract<ToAgent, { t: 'ended' }>): void {
    const host = this.#session.hosts.get(actor);
    const { incarnation, reason } = message;
    if (host !== undefined) this.#session.unhost(host, { incarnation, reason, lastStderr: [] });
    if (!this.#alone) {
      this.#carrier.send(message);
      return;
    }
    this.#session.flush();
    this.#carrier.send(message, () => setImmediate(() => this.#carrier.exit(0)));
  }
}
