/** The airline domain: 14 tools of the agent over one database; the user only talks. */
import { calculateTool, transferTool } from '../common-tools.ts';
import type { Domain } from '../domain.ts';
import { validate } from '../python/shape.ts';
import { baseTable, hashTables, patchTables, sameTables, snapshotTables } from '../table.ts';
import { inOrder, Toolkit } from '../toolkit.ts';
import { booking } from './booking.ts';
import { database, flight, reservation, user } from './data.ts';
import { reads } from './reads.ts';
import { updates } from './updates.ts';
import { AirlineWorld } from './world.ts';

const ORDER = [
  'book_reservation',
  'calculate',
  'cancel_reservation',
  'get_reservation_details',
  'get_user_details',
  'list_all_airports',
  'search_direct_flight',
  'search_onestop_flight',
  'send_certificate',
  'transfer_to_human_agents',
  'update_reservation_baggages',
  'update_reservation_flights',
  'update_reservation_passengers',
  'get_flight_status',
];

export const airlineTools = new Toolkit<AirlineWorld>(
  'AirlineTools',
  inOrder(ORDER, [calculateTool<AirlineWorld>(), transferTool<AirlineWorld>(), ...reads, ...booking, ...updates]),
);

/** `db`: the content of db.json, read in order. */
export function airline(db: unknown): Domain<AirlineWorld> {
  const { flights, users, reservations } = validate('FlightDB', database, db);
  const base = { flights: baseTable(flight, flights), users: baseTable(user, users), reservations: baseTable(reservation, reservations) };
  return {
    name: 'airline',
    agent: airlineTools,
    world: (fixes) => new AirlineWorld(base, fixes),
    update: (world, _side, data) => patchTables(world.tables, data),
    hashes: (world) => ({ agent: hashTables(world.tables), user: null }),
    same: (a, b) => sameTables(a.tables, b.tables),
    snapshot: (world) => snapshotTables(world.tables),
  };
}
