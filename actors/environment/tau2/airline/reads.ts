/** Airline tools that look something up. */
import { z } from 'zod';
import { dumps } from '../python/json.ts';
import { equals, hashable } from '../python/values.ts';
import { type Tau2Tool, tau2Tool } from '../toolkit.ts';
import { type Available, type DirectFlight, directFlight } from './data.ts';
import type { AirlineWorld } from './world.ts';

const AIRPORTS: readonly (readonly [string, string])[] = [
  ['SFO', 'San Francisco'],
  ['JFK', 'New York'],
  ['LAX', 'Los Angeles'],
  ['ORD', 'Chicago'],
  ['DFW', 'Dallas'],
  ['DEN', 'Denver'],
  ['SEA', 'Seattle'],
  ['ATL', 'Atlanta'],
  ['MIA', 'Miami'],
  ['BOS', 'Boston'],
  ['PHX', 'Phoenix'],
  ['IAH', 'Houston'],
  ['LAS', 'Las Vegas'],
  ['MCO', 'Orlando'],
  ['EWR', 'Newark'],
  ['CLT', 'Charlotte'],
  ['MSP', 'Minneapolis'],
  ['DTW', 'Detroit'],
  ['PHL', 'Philadelphia'],
  ['LGA', 'LaGuardia'],
];
const airports = dumps(AIRPORTS.map(([iata, city]) => ({ iata, city })));

const route = {
  origin: z.string().describe("airport of departure in three letters, such as 'JFK'"),
  destination: z.string().describe("airport of arrival in three letters, such as 'LAX'"),
  date: z.string().describe("YYYY-MM-DD, such as '2024-05-01'"),
};

/** Flights with seats on sale; null leaves a side open, as in the original. */
function search(world: AirlineWorld, o: { origin: unknown; destination: unknown; date: unknown; after?: string }): DirectFlight[] {
  const found: DirectFlight[] = [];
  for (const [, flight] of world.tables.flights.entries()) {
    if (o.origin !== null && !equals(flight.origin, o.origin)) continue;
    if (o.destination !== null && !equals(flight.destination, o.destination)) continue;
    hashable(o.date);
    const day = typeof o.date === 'string' ? flight.dates.get(o.date) : undefined;
    if (day?.status !== 'available' || (o.after !== undefined && flight.scheduled_departure_time_est < o.after)) continue;
    const { available_seats, prices } = day as Available;
    found.push({
      flight_number: flight.flight_number,
      origin: flight.origin,
      destination: flight.destination,
      status: 'available',
      scheduled_departure_time_est: flight.scheduled_departure_time_est,
      scheduled_arrival_time_est: flight.scheduled_arrival_time_est,
      date: null,
      available_seats,
      prices,
    });
  }
  return found;
}

const print = (flight: DirectFlight): string => directFlight.write(flight, false);

export const reads: Tau2Tool<AirlineWorld>[] = [
  tau2Tool({
    name: 'get_reservation_details',
    kind: 'read',
    description: 'A reservation with flights, passengers and payments.',
    parameters: z.object({ reservation_id: z.string().describe("such as '8JX2WO'") }),
    run: (world: AirlineWorld, { reservation_id }) => world.tables.reservations.show(world.reservation(reservation_id).reservation_id),
  }),
  tau2Tool({
    name: 'get_user_details',
    kind: 'read',
    description: 'A user with payment methods, saved passengers and reservations.',
    parameters: z.object({ user_id: z.string().describe("such as 'sara_doe_496'") }),
    run: (world: AirlineWorld, { user_id }) => world.tables.users.show(world.user(user_id).user_id),
  }),
  tau2Tool({
    name: 'list_all_airports',
    kind: 'read',
    description: 'All airports: code and city.',
    parameters: z.object({}),
    run: () => airports,
  }),
  tau2Tool({
    name: 'search_direct_flight',
    kind: 'read',
    description: 'Direct flights between two airports on a day.',
    parameters: z.object(route),
    run: (world: AirlineWorld, { origin, destination, date }) => `[${search(world, { origin, destination, date }).map(print).join(', ')}]`,
  }),
  tau2Tool({
    name: 'search_onestop_flight',
    kind: 'read',
    description: 'Pairs of flights between two airports with one stop, from a day on.',
    parameters: z.object(route),
    run(world: AirlineWorld, { origin, destination, date }) {
      const pairs: string[] = [];
      for (const first of search(world, { origin, destination: null, date })) {
        first.date = date as string;
        const arrival = first.scheduled_arrival_time_est;
        // The original does not pad the day of the next morning: from the 1st to the 8th it finds nothing.
        const day = arrival.includes('+1') ? `2024-05-${Number((date as string).slice(-2)) + 1}` : (date as string);
        for (const second of search(world, { origin: first.destination, destination, date: day, after: arrival })) {
          second.date = day;
          pairs.push(`[${print(first)}, ${print(second)}]`);
        }
      }
      return `[${pairs.join(', ')}]`;
    },
  }),
  tau2Tool({
    name: 'get_flight_status',
    kind: 'read',
    description: 'The status of a flight on a day.',
    parameters: z.object({ flight_number: z.string().describe("such as 'HAT001'"), date: route.date }),
    run: (world: AirlineWorld, { flight_number, date }) => world.day(flight_number, date).status,
  }),
];
