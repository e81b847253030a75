/** Booking and cancelling. Checks in the benchmark's order; writes are not atomic there, so a certificate listed twice is lost. */
import { z } from 'zod';
import { arithmetic, type Num } from '../python/arithmetic.ts';
import { validate } from '../python/shape.ts';
import { equals, iterate, lookUp, PythonError, repr, str, valueError } from '../python/values.ts';
import { type Tau2Tool, tau2Tool } from '../toolkit.ts';
import { type Available, certificate, type FlightInfo, flightInfo, passenger, payment, reservation } from './data.ts';
import { type AirlineWorld, item, models, notModel } from './world.ts';

const RESERVATION_IDS = ['HATHAT', 'HATHAU', 'HATHAV'];
const CERTIFICATE_IDS = ['certificate_3221322', 'certificate_3221323', 'certificate_3221324'];
const NOW = '2024-05-15T15:00:00';

export const schemas = {
  flights: z.array(
    z.object({ flight_number: z.string().describe("such as 'HAT001'"), date: z.string().describe("YYYY-MM-DD, such as '2024-05-01'") }),
  ),
  passengers: z.array(z.object({ first_name: z.string(), last_name: z.string(), dob: z.string().describe('YYYY-MM-DD') })),
  cabin: z.enum(['business', 'economy', 'basic_economy']),
  reservation_id: z.string().describe("such as 'ZFA04Y'"),
  user_id: z.string().describe("such as 'sara_doe_496'"),
  payment_id: z.string().describe("of the user's payment methods, such as 'credit_card_7815826' or 'gift_card_7815826'"),
};

const book = tau2Tool({
  name: 'book_reservation',
  kind: 'write',
  description: 'Books flights for passengers and pays for them.',
  parameters: z.object({
    user_id: schemas.user_id,
    origin: z.string().describe("airport of departure, such as 'SFO'"),
    destination: z.string().describe("airport of arrival, such as 'JFK'"),
    flight_type: z.enum(['round_trip', 'one_way']),
    cabin: schemas.cabin,
    flights: schemas.flights.describe('each leg of the trip'),
    passengers: schemas.passengers.describe('who flies'),
    payment_methods: z
      .array(z.object({ payment_id: z.string(), amount: z.number().int().describe('in dollars') }))
      .describe('what each method pays; together exactly the price'),
    total_baggages: z.number().int().describe('bags in all'),
    nonfree_baggages: z.number().int().describe('bags that are paid for'),
    insurance: z.enum(['yes', 'no']).describe('whether there is travel insurance'),
  }),
  run(world: AirlineWorld, args) {
    const legs = models('FlightInfo', flightInfo, args.flights);
    const people = models('Passenger', passenger, args.passengers);
    const paid = models('Payment', payment, args.payment_methods);
    const user = world.user(args.user_id);
    const id = RESERVATION_IDS.find((candidate) => world.tables.reservations.find(candidate) === undefined);
    if (id === undefined) throw valueError('Too many reservations');
    const made = validate('Reservation', reservation, {
      reservation_id: id,
      user_id: args.user_id,
      origin: args.origin,
      destination: args.destination,
      flight_type: args.flight_type,
      cabin: args.cabin,
      flights: [],
      passengers: 'of' in people ? people.of : people.raw,
      payment_history: 'of' in paid ? paid.of : paid.raw,
      created_at: NOW,
      total_baggages: args.total_baggages,
      nonfree_baggages: args.nonfree_baggages,
      insurance: args.insurance,
    });
    const { cabin } = made;
    const seats = BigInt(made.passengers.length);
    if (!('of' in legs)) throw notModel(legs.raw, 'flight_number');

    let price: Num = 0n;
    for (const leg of legs.of) {
      const flight = world.flight(leg.flight_number);
      const fare = fareOf(world, leg, cabin, seats);
      const { origin, destination } = flight;
      made.flights.push({ flight_number: leg.flight_number, origin, destination, date: leg.date, price: fare });
      price += fare * seats;
    }
    if (made.insurance === 'yes') price += 30n * seats;
    // As it was passed: with 2.0 bags the whole price is a float.
    price = arithmetic('+', price, arithmetic('*', 50n, args.nonfree_baggages));

    for (const { payment_id, amount } of made.payment_history) {
      const method = user.payment_methods.get(payment_id);
      if (!method) throw valueError(`Payment method ${payment_id} not found`);
      if (method.source !== 'credit_card' && method.amount < amount) throw valueError(`Not enough balance in payment method ${payment_id}`);
    }
    const total = made.payment_history.reduce((sum, { amount }) => sum + amount, 0n);
    if (!equals(total, price)) throw valueError(`Payment amount does not add up, total price is ${str(price)}, but paid ${total}`);

    for (const { payment_id, amount } of made.payment_history) {
      const methods = world.tables.users.edit(user.user_id).payment_methods;
      const method = methods.get(payment_id);
      if (!method) throw new PythonError('KeyError', repr(payment_id));
      if (method.source === 'gift_card') method.amount = Number(arithmetic('-', method.amount, amount));
      else if (method.source === 'certificate') methods.delete(payment_id);
    }
    for (const leg of made.flights) {
      const day = world.tables.flights.edit(leg.flight_number).dates.get(leg.date) as Available;
      day.available_seats.set(cabin, day.available_seats.get(cabin)! - seats);
    }
    world.tables.reservations.put(id, made);
    world.tables.users.edit(user.user_id).reservations.push(id);
    return world.tables.reservations.show(id);
  },
});

/** The price of one seat, where there are enough of them. */
export function fareOf(world: AirlineWorld, leg: FlightInfo, cabin: unknown, seats: bigint): bigint {
  const day = world.day(leg.flight_number, leg.date);
  if (day.status !== 'available') throw valueError(`Flight ${leg.flight_number} not available on date ${leg.date}`);
  const { available_seats, prices } = day as Available;
  if (item(available_seats, cabin) < seats) throw valueError(`Not enough seats on flight ${leg.flight_number}`);
  return item(prices, cabin);
}

const cancel = tau2Tool({
  name: 'cancel_reservation',
  kind: 'write',
  description: 'Cancels a whole reservation.',
  parameters: z.object({ reservation_id: schemas.reservation_id }),
  run(world: AirlineWorld, { reservation_id }) {
    // No seat becomes free and no balance changes: the books only say what goes back.
    const mine = world.tables.reservations.edit(world.reservation(reservation_id).reservation_id);
    mine.payment_history.push(...mine.payment_history.map((p) => ({ payment_id: p.payment_id, amount: -p.amount })));
    mine.status = 'cancelled';
    return world.tables.reservations.show(mine.reservation_id);
  },
});

const send = tau2Tool({
  name: 'send_certificate',
  kind: 'write',
  description: 'Sends a user a certificate. Take care.',
  parameters: z.object({ user_id: schemas.user_id, amount: z.number().int().describe('in dollars') }),
  run(world: AirlineWorld, { user_id, amount }) {
    const user = world.user(user_id);
    for (const id of CERTIFICATE_IDS) {
      if (lookUp(user.payment_methods, id)) continue;
      const made = validate('Certificate', certificate, { source: 'certificate', id, amount });
      world.tables.users.edit(user.user_id).payment_methods.set(id, made);
      return `Certificate ${id} added to user ${user.user_id} with amount ${str(amount)}.`;
    }
    throw valueError('Too many certificates');
  },
});

export const booking: Tau2Tool<AirlineWorld>[] = [book, cancel, send];

/** Length of what was passed for a list of models. */
export function lengthOf(passed: { of: unknown[] } | { raw: unknown }): number {
  return 'of' in passed ? passed.of.length : iterate(passed.raw).length;
}
