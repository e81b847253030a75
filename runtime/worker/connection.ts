// One end of a channel as a worker sees it: calls that wait for an answer, calls that it runs for the peer, refs that go back and forth.
import { RuntimeFailure } from '../api/errors.ts';
import { RELEASED, type Ref, VALUE } from '../objects/index.ts';
import { Channel, type ChannelHandler, decodeError, encodeError, type Transport } from '../wire/index.ts';
import type { ActorClient } from './client.ts';
import type { InboundCall } from './inbound-call.ts';
import type { Lane } from './lane.ts';
import { ABORT, ANSWER, BORROW, CALL, FAILURE, FETCH, GIVE_BACK } from './protocol.ts';
import { collectRefs, type Session } from './session.ts';

export class Connection implements ChannelHandler {
  readonly session: Session;
  readonly channel: Channel;
  /** Unanswered calls and fetches of this worker. */
  #pending = new Map<number, Ref>();
  #next = 1;
  /** Refs of the message that is being encoded. */
  readonly #lent: Ref[] = [];
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
  call(ref: Ref, actor: number, incarnation: number, method: string, args: unknown, remainingMs: number, abortable: boolean): void {
    const id = this.#next++;
    const bytes = this.send([CALL, id, actor, incarnation, method, args, remainingMs, abortable ? 1 : 0]);
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

  abort(ref: Ref): void {
    if (this.#pending.get(ref.callId) === ref) this.send([ABORT, ref.callId]);
  }

  answer(call: number, value: unknown): void {
    try {
      this.send([ANSWER, call, value]);
    } catch (error) {
      this.fail(call, error);
    }
  }

  fail(call: number, error: unknown): void {
    this.send([FAILURE, call, encodeError(error)]);
  }

  onMessage(_channel: Channel, message: unknown[]): void {
    const kind = message[0];
    const call = message[1];
    if (typeof call !== 'number') throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a message without a number');
    switch (kind) {
      case CALL:
        this.session.deliver(this, message);
        return;
      case ANSWER:
        this.#settle(call)?.resolve(message[2]);
        return;
      case FAILURE:
        this.#settle(call)?.reject(decodeError(message[2]));
        return;
      case ABORT:
        this.inbound.get(call)?.abort();
        return;
      case FETCH:
        this.#lendValue(call, message[2]);
        return;
      case GIVE_BACK:
        this.session.loans.change(call, this.peer, -1);
        return;
      case BORROW:
        if (typeof message[2] === 'number') this.session.loans.change(call, message[2], 1);
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
    return ref;
  }

  #lendValue(call: number, id: unknown): void {
    const ref = typeof id === 'number' ? this.session.loans.get(id) : undefined;
    if (ref === undefined) {
      this.fail(call, new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', 'the owner of the ref has released it'));
      return;
    }
    ref.whenSettled(() => {
      if (this.closed) return;
      if (ref.state === VALUE) this.answer(call, ref.value);
      else if (ref.state === RELEASED)
        this.fail(call, new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', 'the owner of the ref has released it'));
      else this.fail(call, ref.value);
    });
  }

  onClose(_channel: Channel, error: Error | undefined): void {
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const task of this.inbound.values()) task.abort();
    this.session.connectionClosed(this, error);
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
