// One end of a channel as a worker sees it: calls that wait for an answer, calls that it runs for the peer, refs that go back and forth.

import { performance } from 'node:perf_hooks';
import type { SinkflexError } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { RELEASED, Ref, VALUE } from '../objects/index.ts';
import { Channel, type ChannelHandler, decodeError, Encoded, type ErrorData, encodeError, type Transport } from '../wire/index.ts';
import type { ActorClient } from './client.ts';
import { currentSentRecorder } from './counters.ts';
import type { InboundCall } from './inbound-call.ts';
import type { Lane } from './lane.ts';
import {
  ABORT,
  ACKNOWLEDGE,
  AGREE,
  ANSWER,
  BORROW,
  BYE,
  CALL,
  CREDIT,
  FAILURE,
  FETCH,
  GIVE_BACK,
  ITEM,
  PEEK,
  RELAY,
  TRACE,
} from './protocol.ts';
import type { Relayed } from './relay.ts';
import { actorScope } from './scope.ts';
import { collectRefs, enter, type Session } from './session.ts';
import type { IncomingStream } from './stream.ts';
import type { Terms } from './terms.ts';

export class Connection implements ChannelHandler {
  readonly session: Session;
  readonly channel: Channel;
  /** Unanswered calls and fetches of this worker. */
  #pending = new Map<number, Ref>();
  #next = 1;
  /** Those of them that are streams. */
  readonly #streams = new Map<number, IncomingStream>();
  /** Refs of the message that is being encoded. */
  readonly #lent: Ref[] = [];
  /** Channels.now at its last use. */
  usedAt = 0;
  /** The peer was asked whether it may end: nothing new is sent on it. */
  leaving = false;
  /** Not relayed. */
  direct = false;
  /** It ends because both sides have done with it. */
  retired = false;
  /** Encoded bytes of unanswered calls. */
  bytesInFlight = 0;
  /** Calls of the peer that it can still abort. */
  readonly inbound = new Map<number, InboundCall>();
  /** Concurrency group of an actor -> calls of this peer that wait behind one whose refs are still being fetched, so that its order holds. */
  readonly held = new Map<Lane, InboundCall[]>();

  constructor(session: Session, peer: number, transport: Transport) {
    this.session = session;
    this.channel = new Channel(peer, transport, this);
  }

  get peer(): number {
    return this.channel.peer;
  }

  get closed(): boolean {
    return this.channel.closed;
  }

  /** Calls and fetches of this worker that the peer has not answered, oldest first. */
  unanswered(): IterableIterator<Ref> {
    return this.#pending.values();
  }

  get unansweredCount(): number {
    return this.#pending.size;
  }

  /** Sends, and notes what refs the message lent to the peer. */
  send(message: unknown[]): number {
    this.usedAt = this.session.channels.now;
    enter(this.session);
    const lent = this.#lent;
    const outer = collectRefs(lent);
    let bytes: number;
    try {
      bytes = this.channel.send(message);
    } catch (error) {
      lent.length = 0;
      throw error;
    } finally {
      collectRefs(outer);
    }
    if (lent.length > 0) for (const ref of lent.splice(0)) this.session.lend(ref, this.peer);
    return bytes;
  }

  /** Throws SINKFLEX_NOT_SERIALIZABLE; otherwise the ref settles with the answer, or when the connection ends. */
  call(ref: Ref, actor: number, incarnation: number, args: unknown, terms: Terms | undefined, lowestKey: number): void {
    const id = this.#next++;
    let message: unknown[];
    if (terms === undefined) message = [CALL, id, actor, incarnation, ref.method, args, 0, 0];
    else {
      message = [CALL, id, actor, incarnation, ref.method, args, terms.remaining(), terms.abortable ? 1 : 0];
      const { stream, group, key } = terms;
      if (stream !== undefined || group !== '' || key !== 0)
        message.push(group, stream?.window ?? 0, stream === undefined ? key : 0, lowestKey);
    }
    const bytes = this.send(message);
    currentSentRecorder()?.({
      from: actorScope()?.actor.id ?? 0,
      actor,
      method: ref.method,
      worker: this.peer,
      call: id,
      at: performance.now(),
    });
    if (terms?.stream !== undefined) this.#streams.set(id, terms.stream);
    ref.callId = id;
    ref.bytes = bytes;
    this.bytesInFlight += bytes;
    this.#pending.set(id, ref);
  }

  fetch(ref: Ref, id: number): void {
    const call = this.#next++;
    this.#pending.set(call, ref);
    this.send([FETCH, call, id]);
  }

  /** Calls back when the owner has a value or an error under that number, or is gone. */
  peek(id: number, settled: () => void): void {
    const probe = new Ref();
    probe.whenSettled(settled);
    const call = this.#next++;
    this.#pending.set(call, probe);
    this.send([PEEK, call, id]);
  }

  abort(ref: Ref): void {
    if (this.#pending.get(ref.callId) === ref) this.send([ABORT, ref.callId, (ref.client as ActorClient).target]);
  }

  credit(ref: Ref, items: number): void {
    if (this.#pending.get(ref.callId) === ref) this.send([CREDIT, ref.callId, items]);
  }

  acknowledge(actor: number, lowestKey: number): void {
    this.send([ACKNOWLEDGE, actor, lowestKey]);
  }

  answer(call: number, value: unknown): void {
    try {
      this.send([ANSWER, call, value]);
    } catch (error) {
      this.fail(call, error);
    }
  }

  bye(): void {
    this.send([BYE, 0]);
  }

  agree(agreed: boolean): void {
    this.send([AGREE, agreed ? 1 : 0]);
  }

  /** To the relay: for that worker; from the relay: of that worker. */
  relay(worker: number, channel: number, what: Relayed): void {
    this.send([RELAY, worker, channel, what]);
  }

  /** Throws SINKFLEX_NOT_SERIALIZABLE: then the stream fails. */
  item(call: number, value: unknown): void {
    this.send([ITEM, call, value]);
  }

  fail(call: number, error: unknown): void {
    this.failWith(call, encodeError(error));
  }

  failWith(call: number, error: ErrorData): void {
    this.send([FAILURE, call, error]);
  }

  onMessage(_channel: Channel, message: unknown[]): void {
    const kind = message[0];
    const call = message[1];
    if (typeof call !== 'number') throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a message without a number');
    this.session.guard?.();
    if (kind !== BYE) this.usedAt = this.session.channels.now;
    switch (kind) {
      case CALL:
        this.session.deliver(this, message);
        return;
      case ANSWER:
        this.#answer(call, message[2]);
        return;
      case FAILURE:
        this.#fail(call, decodeError(message[2]));
        return;
      case ITEM:
        this.#streams.get(call)?.push(message[2]);
        return;
      case ABORT: {
        const task = this.inbound.get(call);
        if (task !== undefined) task.abort();
        else if (typeof message[2] === 'number') this.session.hosts.get(message[2])?.abandon(this, call);
        return;
      }
      case CREDIT:
        if (!Number.isSafeInteger(message[2])) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a credit that is no number');
        this.inbound.get(call)?.stream?.grant(message[2] as number);
        return;
      case ACKNOWLEDGE:
        this.session.hosts.get(call)?.answered.forget(this.peer, Number(message[2]));
        return;
      case FETCH:
        this.#lendValue(call, message[2]);
        return;
      case PEEK: {
        const ref = typeof message[2] === 'number' ? this.session.loans.get(message[2]) : undefined;
        const there = (): void => this.answer(call, undefined);
        if (ref === undefined) there();
        else ref.whenSettled(there);
        return;
      }
      case GIVE_BACK:
        this.session.loans.change(call, this.peer, -1);
        return;
      case BORROW:
        if (typeof message[2] === 'number') this.session.passedOn(call, message[2]);
        return;
      case BYE:
        this.session.channels.onBye(this);
        return;
      case AGREE:
        this.session.channels.onAgreed(this, call === 1);
        return;
      case TRACE:
        this.session.circles?.onTrace(this, call, message.slice(2));
        return;
      case RELAY:
        this.session.channels.relay.onMessage(this, call, message[2], message[3]);
        return;
      default:
        throw new RuntimeFailure('SINKFLEX_PROTOCOL', `the peer sent a message of unknown kind ${String(kind)}`);
    }
  }

  #settle(call: number): Ref | undefined {
    const ref = this.#pending.get(call);
    if (ref === undefined) return undefined;
    this.#pending.delete(call);
    this.bytesInFlight -= ref.bytes;
    if (this.#streams.size > 0) this.#streams.delete(call);
    return ref;
  }

  #answer(call: number, value: unknown): void {
    const ref = this.#settle(call);
    if (ref === undefined) return;
    ref.resolve(value);
    (ref.client as ActorClient | undefined)?.answered(ref);
  }

  #fail(call: number, error: SinkflexError): void {
    const ref = this.#settle(call);
    if (ref === undefined) return;
    const client = ref.client as ActorClient | undefined;
    if (ref.guard !== undefined && client !== undefined) client.failed(ref, error);
    else ref.reject(error);
    client?.answered(ref); // after it has its place in the queue again, if it is made again
  }

  #lendValue(call: number, id: unknown): void {
    const ref = typeof id === 'number' ? this.session.loans.get(id) : undefined;
    if (ref === undefined) {
      this.fail(call, new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', 'the owner of the ref has released it'));
      return;
    }
    ref.whenSettled(() => {
      if (this.closed) return;
      if (ref.state === VALUE) this.#lendTo(call, ref.value);
      else if (ref.state === RELEASED)
        this.fail(call, new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', 'the owner of the ref has released it'));
      else this.fail(call, ref.value);
    });
  }

  #lendTo(call: number, value: unknown): void {
    if (!(value instanceof Encoded)) {
      this.answer(call, value);
      return;
    }
    if (value.away !== undefined) {
      value.away.restoreLater().then(
        () => this.#lendTo(call, value),
        (error) => this.fail(call, error),
      );
      return;
    }
    this.answer(call, value);
    for (const ref of value.refs as Ref[]) this.session.lend(ref, this.peer);
  }

  onClose(_channel: Channel, error: Error | undefined): void {
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    this.#streams.clear();
    for (const task of this.inbound.values()) {
      if (task.key === 0) task.abort();
      else task.host.answered.orphaned(task);
    }
    this.session.channels.closed(this, error);
    for (const ref of pending) {
      const client = ref.client as ActorClient | undefined;
      if (client !== undefined) client.lose(ref);
      else
        ref.reject(
          new RuntimeFailure(
            'SINKFLEX_OBJECT_LOST',
            `worker ${this.peer}, the owner of the value, is gone`,
            error === undefined ? {} : { cause: error },
          ),
        );
    }
  }
}
