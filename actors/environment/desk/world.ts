/**
 * The two halves of the desk's world: the company's data, which the agent's tools read and write, and the caller's bike and phone,
 * which only the caller can see and move. Reads never change state; a refused call changes nothing.
 */
import { createHash } from 'node:crypto';
import type { DeskTask } from './task.ts';
import { PARTS, type Part, RESULT, type ToolName, USER } from './words.ts';

export interface Outcome {
  text: string;
  /** The call was carried out. */
  ok: boolean;
  /** Something in either half of the world is different now. */
  changed: boolean;
}

export type UserRequest = 'code' | 'bluetooth' | 'latch' | 'walk' | 'light' | 'rule';

const read = (text: string): Outcome => ({ text, ok: true, changed: false });
const refuse = (text: string): Outcome => ({ text, ok: false, changed: false });
const DONE: Outcome = { text: RESULT.ok, ok: true, changed: true };

export class DeskWorld {
  readonly task: DeskTask;
  readonly #ended: boolean[];
  readonly #refunded: number[];
  readonly #locked: boolean[];
  readonly #flag: (Part | 'none')[];
  /** Where each bike stands; the caller may move one. */
  readonly #at: number[];
  readonly #docks: number[];
  #bluetooth: boolean;
  #latchShut = false;
  #transferred = false;

  constructor(task: DeskTask) {
    this.task = task;
    this.#ended = task.rides.map(() => false);
    this.#refunded = task.rides.map(() => 0);
    this.#locked = task.bikes.map(() => false);
    this.#flag = task.bikes.map(() => 'none');
    this.#at = task.bikes.map((bike) => bike.dock);
    this.#docks = task.docks.slice();
    this.#bluetooth = task.bluetooth;
  }

  /** A tool of the agent. Arguments are checked here too: they come from a model. */
  tool(name: ToolName, args: Record<string, unknown>): Outcome {
    switch (name) {
      case 'find_rider': {
        const rider = this.task.riders.find((r) => r.code === args.code);
        return rider ? read(RESULT.rider(rider.standing, rider.ride)) : refuse(RESULT.noRider);
      }
      case 'get_ride': {
        const ride = this.task.rides.find((r) => r.id === args.ride);
        return ride ? read(RESULT.ride(ride.bike, ride.cost)) : refuse(RESULT.noRide);
      }
      case 'get_bike': {
        const bike = this.#bike(args.bike);
        return bike < 0 ? refuse(RESULT.noBike) : read(RESULT.bike(this.#locked[bike]!, this.#at[bike]!, this.#flag[bike]!));
      }
      case 'docks':
        return read(RESULT.docks(this.#docks.flatMap((free, i) => (free > 0 ? [i + 1] : []))));
      case 'lock':
        return this.#lock(this.#bike(args.bike));
      case 'end_ride':
        return this.#end(this.#ride(args.ride));
      case 'flag': {
        const bike = this.#bike(args.bike);
        if (bike < 0) return refuse(RESULT.noBike);
        if (!PARTS.includes(args.part as Part)) return refuse(RESULT.noCall);
        const changed = this.#flag[bike] !== args.part;
        this.#flag[bike] = args.part as Part;
        return { ...DONE, changed };
      }
      case 'refund':
        return this.#refund(this.#ride(args.ride), Number(args.amount));
      case 'transfer':
        this.#transferred = true;
        return DONE;
    }
  }

  /** Something that the caller does or looks up when asked. */
  user(request: UserRequest, dock = 0): Outcome {
    switch (request) {
      case 'code':
        return read(USER.code(this.task.riders[this.task.caller]!.code));
      case 'light':
        return read(USER.light(this.task.colour));
      case 'rule':
        return read(USER.thanks);
      case 'bluetooth': {
        const changed = !this.#bluetooth;
        this.#bluetooth = true;
        return { text: USER.on, ok: true, changed };
      }
      case 'latch': {
        if (this.#latchShut) return read(USER.shut);
        if (!this.#bluetooth) return refuse(USER.beeps);
        if (this.#docks[this.#at[this.task.caller]! - 1] === 0) return refuse(USER.full);
        this.#latchShut = true;
        return { text: USER.shut, ok: true, changed: true };
      }
      case 'walk': {
        if (this.#latchShut) return refuse(USER.shut);
        if (!(dock >= 1 && dock <= this.#docks.length)) return refuse(USER.noDock);
        const changed = this.#at[this.task.caller] !== dock;
        this.#at[this.task.caller] = dock;
        return { text: USER.there, ok: true, changed };
      }
    }
  }

  #bike(id: unknown): number {
    return this.task.bikes.findIndex((bike) => bike.id === id);
  }

  #ride(id: unknown): number {
    return this.task.rides.findIndex((ride) => ride.id === id);
  }

  #lock(bike: number): Outcome {
    if (bike < 0) return refuse(RESULT.noBike);
    if (this.#locked[bike]) return refuse(RESULT.bikeLocked);
    // Only the caller's latch can be shut: the other riders are still under way.
    if (bike !== this.task.caller || !this.#latchShut) return refuse(RESULT.latchOpen);
    this.#locked[bike] = true;
    this.#docks[this.#at[bike]! - 1]!--;
    return DONE;
  }

  #end(ride: number): Outcome {
    if (ride < 0) return refuse(RESULT.noRide);
    if (this.#ended[ride]) return refuse(RESULT.rideEnded);
    if (!this.#locked[ride]) return refuse(RESULT.bikeOpen);
    this.#ended[ride] = true;
    return DONE;
  }

  #refund(ride: number, amount: number): Outcome {
    if (ride < 0) return refuse(RESULT.noRide);
    if (!this.#ended[ride]) return refuse(RESULT.rideOpen);
    if (this.#refunded[ride]) return refuse(RESULT.refunded);
    if (!(Number.isInteger(amount) && amount > 0)) return refuse(RESULT.noCall);
    if (amount > this.task.rides[ride]!.cost) return refuse(RESULT.tooMuch);
    this.#refunded[ride] = amount;
    return DONE;
  }

  /** Both halves, canonically; what the checker compares. */
  canonical(): string {
    return [
      this.#ended.map(Number),
      this.#refunded,
      this.#locked.map(Number),
      this.#flag,
      this.#at,
      this.#docks,
      [Number(this.#bluetooth), Number(this.#latchShut), Number(this.#transferred)],
    ].join('|');
  }

  hash(): string {
    return createHash('sha256').update(this.canonical()).digest('hex');
  }
}
