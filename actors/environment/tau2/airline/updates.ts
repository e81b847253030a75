/** Changing a reservation. Seats are never touched; a gift card is charged, or credited where the price falls. */
import { z } from 'zod';
import { arithmetic, type Num } from '../python/arithmetic.ts';
import { validate } from '../python/shape.ts';
import { equals, lookUp, valueError } from '../python/values.ts';
import { type Tau2Tool, tau2Tool } from '../toolkit.ts';
import { fareOf, lengthOf, schemas } from './booking.ts';
import { flightInfo, type Passenger, passenger, payment, type Reservation } from './data.ts';
import { type AirlineWorld, models, notModel } from './world.ts';

/** Charges the difference; answers what goes into the reservation's history, if anything. */
function charge(world: AirlineWorld, userId: string, paymentId: unknown, price: Num) {
  const method = lookUp(world.user(userId).payment_methods, paymentId);
  if (!method) throw valueError('Payment method not found');
  if (method.source === 'certificate') throw valueError('Certificate cannot be used to update reservation');
  if (method.source === 'gift_card') {
    if (method.amount < price) throw valueError('Gift card balance is not enough');
    const mine = world.tables.users.edit(userId).payment_methods.get(paymentId as string)!;
    if (mine.source === 'gift_card') mine.amount = Number(arithmetic('-', mine.amount, price));
  }
  return equals(price, 0n) ? [] : [validate('Payment', payment, { payment_id: paymentId, amount: price })];
}

const baggages = tau2Tool({
  name: 'update_reservation_baggages',
  kind: 'write',
  description: 'Changes the bags of a reservation.',
  parameters: z.object({
    reservation_id: schemas.reservation_id,
    total_baggages: z.number().int().describe('bags in all'),
    nonfree_baggages: z.number().int().describe('bags that are paid for'),
    payment_id: schemas.payment_id,
  }),
  run(world: AirlineWorld, args) {
    const before = world.reservation(args.reservation_id);
    const user = world.user(before.user_id);
    const more = arithmetic('-', args.nonfree_baggages, before.nonfree_baggages);
    const paid = charge(world, user.user_id, args.payment_id, arithmetic('*', 50n, more > 0 ? more : 0n));
    const mine = world.tables.reservations.edit(before.reservation_id);
    mine.payment_history.push(...paid);
    mine.total_baggages = args.total_baggages as bigint;
    mine.nonfree_baggages = args.nonfree_baggages as bigint;
    return world.tables.reservations.show(mine.reservation_id);
  },
});

const flights = tau2Tool({
  name: 'update_reservation_flights',
  kind: 'write',
  description: 'Changes the flights or the cabin of a reservation.',
  parameters: z.object({
    reservation_id: schemas.reservation_id,
    cabin: schemas.cabin,
    flights: schemas.flights.describe('each leg of the whole new trip, those that stay too'),
    payment_id: schemas.payment_id,
  }),
  run(world: AirlineWorld, args) {
    const legs = models('FlightInfo', flightInfo, args.flights);
    const before = world.reservation(args.reservation_id);
    const user = world.user(before.user_id);
    if (!('of' in legs)) throw notModel(legs.raw, 'flight_number');
    const seats = BigInt(before.passengers.length);
    const next: Reservation['flights'] = [];
    let price = 0n;
    for (const leg of legs.of) {
      const same = before.flights.find(
        (f) => f.flight_number === leg.flight_number && f.date === leg.date && equals(args.cabin, before.cabin),
      );
      if (same) next.push({ ...same });
      else {
        const { origin, destination } = world.flight(leg.flight_number);
        next.push({ flight_number: leg.flight_number, origin, destination, date: leg.date, price: fareOf(world, leg, args.cabin, seats) });
      }
      price += next.at(-1)!.price * seats;
    }
    price -= before.flights.reduce((sum, f) => sum + f.price, 0n) * seats;
    const paid = charge(world, user.user_id, args.payment_id, price);
    const mine = world.tables.reservations.edit(before.reservation_id);
    mine.payment_history.push(...paid);
    mine.flights = next;
    mine.cabin = args.cabin as string;
    return world.tables.reservations.show(mine.reservation_id);
  },
});

const passengers = tau2Tool({
  name: 'update_reservation_passengers',
  kind: 'write',
  description: 'Changes who flies in a reservation; as many as before.',
  parameters: z.object({ reservation_id: schemas.reservation_id, passengers: schemas.passengers.describe('all passengers') }),
  run(world: AirlineWorld, args) {
    const people = models('Passenger', passenger, args.passengers);
    const before = world.reservation(args.reservation_id);
    if (lengthOf(people) !== before.passengers.length) throw valueError('Number of passengers does not match');
    const mine = world.tables.reservations.edit(before.reservation_id);
    mine.passengers = 'of' in people ? people.of : (structuredClone(people.raw) as Passenger[]);
    return world.tables.reservations.show(mine.reservation_id);
  },
});

export const updates: Tau2Tool<AirlineWorld>[] = [baggages, flights, passengers];
