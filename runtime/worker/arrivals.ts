// Calls on their way into a mailbox: one whose arguments are refs waits until their values are there, and later calls of its caller to the
// same concurrency group wait behind it, so that the order holds.
import { RuntimeFailure } from '../api/errors.ts';
import { FAILED, PENDING, RELEASED, Ref } from '../objects/index.ts';
import type { Connection } from './connection.ts';
import type { ActorHost } from './host.ts';
import type { InboundCall } from './inbound-call.ts';
import type { Lane } from './lane.ts';

export class Arrivals {
  readonly #host: ActorHost;
  readonly #ready: (call: InboundCall, lane: Lane) => void;
  /** Calls that wait here. */
  held = 0;

  constructor(host: ActorHost, ready: (call: InboundCall, lane: Lane) => void) {
    this.#host = host;
    this.#ready = ready;
  }

  add(call: InboundCall, lane: Lane): void {
    const held = call.connection.held.get(lane);
    let refs = 0;
    for (let i = 0; i < call.args.length; i++) if (call.args[i] instanceof Ref) refs++;
    if (refs > 0) this.#fetch(call, lane, refs);
    if (held === undefined && call.waiting === 0) {
      this.#ready(call, lane);
      return;
    }
    this.held++;
    if (held !== undefined) held.push(call);
    else call.connection.held.set(lane, [call]);
  }

  #fetch(call: InboundCall, lane: Lane, refs: number): void {
    call.waiting = refs;
    const arrived = (ref: Ref, index: number): void => {
      if (ref.state === FAILED) call.failure ??= ref.value;
      else if (ref.state === RELEASED)
        call.failure ??= new RuntimeFailure(
          'SINKFLEX_OBJECT_RELEASED',
          `argument ${index} of ${this.#host.name}.${call.method}() was released`,
        );
      else {
        try {
          call.args[index] = ref.read();
        } catch (error) {
          call.failure ??= error; // it had gone to disk, and is lost
        }
      }
      if (ref.borrowed !== undefined) ref.release();
      call.waiting--;
      if (call.waiting === 0) this.#release(call.connection, lane);
    };
    for (let i = 0; i < call.args.length; i++) {
      const arg = call.args[i];
      if (!(arg instanceof Ref)) continue;
      // Never settles within this loop's add(): order is decided first.
      if (arg.state === PENDING) arg.whenSettled((ref) => arrived(ref, i));
      else queueMicrotask(() => arrived(arg, i));
    }
  }

  #release(connection: Connection, lane: Lane): void {
    const held = connection.held.get(lane);
    if (held === undefined) return;
    let ready = 0;
    while (ready < held.length && held[ready]!.waiting === 0) ready++;
    const calls = held.splice(0, ready);
    if (held.length === 0) connection.held.delete(lane);
    this.held -= calls.length;
    for (const call of calls) this.#ready(call, lane);
  }
}
