// A bad network on order: what a process sends to other hosts and hears from them is dropped, delayed, doubled, overtaken, changed, held back or
// cut short as rules say, drawn from a seed. One emulation for the process; without one everything passes at once.
import { BroadcastChannel } from 'node:worker_threads';
// By their files: every worker loads this one, and none the whole control plane.
import { systemClock } from '../control/clock.ts';
import { nextState, unitOf } from '../control/random.ts';
import type { Room } from './handshake.ts';

/** Which pipe: for the control of the head, or to that other host or a worker there. */
export interface Place {
  room: Room;
  host?: string;
}

/** Shares are probabilities for each message. */
export interface LinkRules {
  /** Default all; `link` means also the links of workers. */
  room?: 'head' | 'link' | undefined;
  /** The other host, as it names itself; default every one. */
  host?: string | undefined;
  /** Default both. */
  direction?: 'out' | 'in' | undefined;
  drop?: number | undefined;
  duplicate?: number | undefined;
  /** The next one overtakes it. */
  reorder?: number | undefined;
  /** One bit is another. */
  corrupt?: number | undefined;
  delayMs?: number | undefined;
  /** Up to so much more. */
  jitterMs?: number | undefined;
  bytesPerSecond?: number | undefined;
  /** Nothing passes, as when a cable is pulled: what was sent meanwhile arrives if it is put back in time. */
  cut?: boolean | undefined;
  /** The connection breaks in its stead: the request is lost, and so is the answer. */
  requestLost?: number | undefined;
  /** The connection breaks when the answer comes. */
  replyLost?: number | undefined;
  /** The connection breaks just behind the request. */
  brokenBehind?: number | undefined;
}

/** What was done to messages. */
export type Done = Record<'passed' | 'dropped' | 'duplicated' | 'reordered' | 'corrupted' | 'severed', number>;

/** In this thread, by all emulations so far. */
const done: Done = { passed: 0, dropped: 0, duplicated: 0, reordered: 0, corrupted: 0, severed: 0 };

export const messagesDone = (): Done => ({ ...done });

class Emulation {
  readonly rules: LinkRules;
  readonly until: number;
  #state: number;

  /** `until`: performance.now() at which it ends. */
  constructor(rules: LinkRules, seed: number, until: number) {
    this.rules = rules;
    this.until = until;
    this.#state = seed >>> 0;
  }

  /** For a process that begins with it now. */
  get order(): EmulationOrder {
    return { rules: this.rules, seed: this.#state, forMs: Math.max(0, this.until - performance.now()) };
  }

  chance(share = 0): boolean {
    return share > 0 && this.unit() < share;
  }

  unit(): number {
    this.#state = nextState(this.#state);
    return unitOf(this.#state);
  }

  applies(direction: 'out' | 'in', place: Place): boolean {
    const own = place.room === 'worker' ? 'link' : place.room;
    const { room = own, host = place.host, direction: only = direction } = this.rules;
    return room === own && host === place.host && only === direction;
  }
}

/** One that is held back for the next to overtake it passes after so long if none comes. */
const OVERTAKEN_MS = 20;

const emulations = new Set<Emulation>();
/** Lanes that hold something back for a cut that may be over. */
const waiting = new Set<Lane>();

export interface EmulationOrder {
  rules: LinkRules;
  seed: number;
  forMs: number;
}

/** In this thread: ends by itself after `forMs`. */
export function emulateHere({ rules, seed, forMs }: EmulationOrder): void {
  const emulation = new Emulation(rules, seed, performance.now() + forMs);
  emulations.add(emulation);
  systemClock.after(
    forMs,
    () => {
      emulations.delete(emulation);
      for (const lane of [...waiting]) lane.look();
    },
    true,
  );
}

/** What is under way in this thread. */
export const currentOrders = (): EmulationOrder[] => [...emulations].map(({ order }) => order);

const TO_THREADS = 'sinkflex-emulation';

/** In every thread of this process that has connections to others. */
export function emulate(order: EmulationOrder): void {
  const threads = new BroadcastChannel(TO_THREADS);
  threads.postMessage(order);
  threads.close();
  emulateHere(order);
}

/** For a thread beside the main one that has a connection of its own, such as the heartbeat's. */
export function followEmulations(): void {
  const orders = new BroadcastChannel(TO_THREADS);
  orders.onmessage = (event) => emulateHere((event as { data: EmulationOrder }).data);
  orders.unref();
}

function emulationOf(direction: 'out' | 'in', place: Place): Emulation | undefined {
  for (const each of emulations) if (each.applies(direction, place)) return each;
  return undefined;
}

/** Whether no new connection comes about there. */
export function isCut(place: Place): boolean {
  return emulationOf('out', place)?.rules.cut === true || emulationOf('in', place)?.rules.cut === true;
}

interface Held {
  at: number;
  pass(): void;
}

/** One direction of one pipe. */
export class Lane {
  readonly #direction: 'out' | 'in';
  readonly #place: Place;
  readonly #sever: () => void;
  /** In the order in which they pass. */
  #held: Held[] = [];
  #timer: NodeJS.Timeout | undefined;
  /** When the last one passes. */
  #lastAt = 0;
  #closed = false;

  constructor(direction: 'out' | 'in', place: Place, sever: () => void) {
    this.#direction = direction;
    this.#place = place;
    this.#sever = sever;
  }

  /** `sign`: one of life, not a message: it is only delayed, or held back. */
  pass(data: Buffer, deliver: (data: Buffer) => void, sign = false): void {
    const emulation = emulations.size === 0 ? undefined : emulationOf(this.#direction, this.#place);
    if (emulation === undefined && this.#held.length === 0) deliver(data);
    else if (emulation === undefined) this.#hold({ at: this.#lastAt, pass: () => deliver(data) });
    else if (!sign) this.#emulate(emulation, data, deliver);
    else this.#hold({ at: this.#when(emulation, data.length), pass: () => deliver(data) });
  }

  #emulate(emulation: Emulation, data: Buffer, deliver: (data: Buffer) => void): void {
    const { rules } = emulation;
    if (emulation.chance(this.#direction === 'out' ? rules.requestLost : rules.replyLost)) {
      done.severed++;
      this.#sever();
      return;
    }
    if (emulation.chance(rules.drop)) {
      done.dropped++;
      return;
    }
    const changed = emulation.chance(rules.corrupt) && data.length > 0 ? flipped(data, emulation.unit()) : data;
    if (changed !== data) done.corrupted++;
    done.passed++;
    const severs = this.#direction === 'out' && emulation.chance(rules.brokenBehind);
    const held = {
      at: this.#when(emulation, data.length),
      pass: () => {
        deliver(changed);
        if (severs) this.#sever();
      },
    };
    if (severs) done.severed++;
    if (emulation.chance(rules.reorder)) {
      done.reordered++;
      this.#insert({ ...held, at: held.at + OVERTAKEN_MS });
    } else this.#hold(held);
    if (!emulation.chance(rules.duplicate)) return;
    done.duplicated++;
    this.#hold({ at: this.#lastAt, pass: () => deliver(changed) });
  }

  #when(emulation: Emulation, bytes: number): number {
    const { delayMs = 0, jitterMs = 0, bytesPerSecond } = emulation.rules;
    const now = performance.now();
    const slow = bytesPerSecond === undefined ? 0 : (bytes / bytesPerSecond) * 1000;
    const drawn = jitterMs === 0 ? 0 : jitterMs * emulation.unit();
    return Math.max(now + delayMs + drawn, this.#lastAt) + slow;
  }

  #hold(held: Held): void {
    this.#lastAt = held.at;
    this.#insert(held);
  }

  #insert(held: Held): void {
    const later = this.#held.findIndex(({ at }) => at > held.at);
    this.#held.splice(later < 0 ? this.#held.length : later, 0, held);
    if (this.#held[0] === held) this.#arm();
  }

  #arm(): void {
    clearTimeout(this.#timer);
    const next = this.#held[0];
    if (next === undefined || this.#closed) return;
    if (this.#cut()) {
      waiting.add(this);
      return;
    }
    this.#timer = setTimeout(() => this.#due(), Math.max(0, next.at - performance.now()));
  }

  #cut(): boolean {
    return emulations.size > 0 && emulationOf(this.#direction, this.#place)?.rules.cut === true;
  }

  #due(): void {
    const now = performance.now();
    while (!this.#closed && this.#held.length > 0 && this.#held[0]!.at <= now + 1 && !this.#cut()) this.#held.shift()!.pass();
    this.#arm();
  }

  /** A cut may be over. */
  look(): void {
    waiting.delete(this);
    this.#arm();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#held = [];
    waiting.delete(this);
  }
}

function flipped(data: Buffer, where: number): Buffer {
  const changed = Buffer.from(data);
  const bit = Math.floor(where * data.length * 8);
  changed[bit >> 3]! ^= 1 << (bit & 7);
  return changed;
}
