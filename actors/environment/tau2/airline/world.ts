/** One environment's airline world, and the look-ups that its tools share. */
import { type Shape, validate } from '../python/shape.ts';
import { hashable, isDict, iterate, lookUp, noAttribute, PythonError, repr, str, valueError } from '../python/values.ts';
import type { Fixes } from '../settings.ts';
import { type BaseTable, Table } from '../table.ts';
import type { Flight, FlightDay, Reservation, User } from './data.ts';

export interface AirlineBase {
  flights: BaseTable<Flight>;
  users: BaseTable<User>;
  reservations: BaseTable<Reservation>;
}

export class AirlineWorld {
  readonly tables: { flights: Table<Flight>; users: Table<User>; reservations: Table<Reservation> };
  readonly fixes: Fixes;

  constructor(base: AirlineBase, fixes: Fixes) {
    this.tables = { flights: new Table(base.flights), users: new Table(base.users), reservations: new Table(base.reservations) };
    this.fixes = fixes;
  }

  user(id: unknown): Readonly<User> {
    return this.tables.users.find(id) ?? missing(`User ${str(id)} not found`);
  }

  reservation(id: unknown): Readonly<Reservation> {
    return this.tables.reservations.find(id) ?? missing(`Reservation ${str(id)} not found`);
  }

  flight(number: unknown): Readonly<Flight> {
    return this.tables.flights.find(number) ?? missing(`Flight ${str(number)} not found`);
  }

  day(number: unknown, date: unknown): Readonly<FlightDay> {
    return lookUp(this.flight(number).dates, date) ?? missing(`Flight ${str(number)} not found on date ${str(date)}`);
  }
}

function missing(message: string): never {
  throw valueError(message);
}

/** `map[key]` of a dict with string keys. */
export function item(map: ReadonlyMap<string, bigint>, key: unknown): bigint {
  hashable(key);
  const value = typeof key === 'string' ? map.get(key) : undefined;
  if (value === undefined) throw new PythonError('KeyError', repr(key));
  return value;
}

/** Dicts become models where all of a list are dicts; else the list stays as it was passed. */
export function models<T>(name: string, shape: Shape<T>, passed: unknown): { of: T[] } | { raw: unknown } {
  const items = iterate(passed);
  return items.every(isDict) ? { of: items.map((x) => validate(name, shape, x)) } : { raw: passed };
}

/** What follows where a model was expected, and anything else was passed. */
export function notModel(raw: unknown, attribute: string): PythonError {
  return noAttribute(iterate(raw)[0], attribute);
}
