/** The airline database: its models, in the order in which their fields print. */
import { dict, float, int, list, literal, optional, type RecordOf, record, type Shape, text, union } from '../python/shape.ts';

export const CABINS = ['business', 'economy', 'basic_economy'] as const;
const cabin = literal(...CABINS) as Shape<string>;
const seats = dict(int);
const amount = float as Shape<number>;

export const payment = record('Payment', { payment_id: text, amount: int });
export const certificate = record('Certificate', { source: literal('certificate'), id: text, amount });
const card = record('CreditCard', { source: literal('credit_card'), id: text, brand: text, last_four: text });
const gift = record('GiftCard', { source: literal('gift_card'), id: text, amount });
export type PaymentMethod = RecordOf<typeof card.fields> | RecordOf<typeof gift.fields> | RecordOf<typeof certificate.fields>;

export const passenger = record('Passenger', { first_name: text, last_name: text, dob: text });

const available = record('FlightDateStatusAvailable', { status: literal('available'), available_seats: seats, prices: seats });
const times = <S extends string>(name: string, status: S, departure: 'actual' | 'estimated', arrival: 'actual' | 'estimated') =>
  record(name, { status: literal(status), [`${departure}_departure_time_est`]: text, [`${arrival}_arrival_time_est`]: text });
export type Available = RecordOf<typeof available.fields>;
export type FlightDay = Available | { status: 'landed' | 'cancelled' | 'delayed' | 'flying' | 'on time' };

export const flight = record('Flight', {
  flight_number: text,
  origin: text,
  destination: text,
  scheduled_departure_time_est: text,
  scheduled_arrival_time_est: text,
  dates: dict(
    union<FlightDay>('status', {
      available,
      landed: times('FlightDateStatusLanded', 'landed', 'actual', 'actual'),
      cancelled: record('FlightDateStatusCancelled', { status: literal('cancelled') }),
      delayed: times('FlightDateStatusDelayed', 'delayed', 'estimated', 'estimated'),
      flying: times('FlightDataStatusFlying', 'flying', 'actual', 'estimated'),
      'on time': times('FlightDataStatusOnTime', 'on time', 'estimated', 'estimated'),
    }),
  ),
});

export const directFlight = record('DirectFlight', {
  flight_number: text,
  origin: text,
  destination: text,
  status: literal('available'),
  scheduled_departure_time_est: text,
  scheduled_arrival_time_est: text,
  date: optional(text),
  available_seats: seats,
  prices: seats,
});

export const flightInfo = record('FlightInfo', { flight_number: text, date: text });

export const user = record('User', {
  user_id: text,
  name: record('Name', { first_name: text, last_name: text }),
  address: record('Address', { address1: text, address2: optional(text), city: text, country: text, state: text, zip: text }),
  email: text,
  dob: text,
  payment_methods: dict(union<PaymentMethod>('source', { credit_card: card, gift_card: gift, certificate })),
  saved_passengers: list(passenger),
  membership: literal('gold', 'silver', 'regular'),
  reservations: list(text),
});

export const reservation = record('Reservation', {
  reservation_id: text,
  user_id: text,
  origin: text,
  destination: text,
  flight_type: literal('round_trip', 'one_way') as Shape<string>,
  cabin,
  flights: list(record('ReservationFlight', { flight_number: text, origin: text, destination: text, date: text, price: int })),
  passengers: list(passenger),
  payment_history: list(payment),
  created_at: text,
  total_baggages: int,
  nonfree_baggages: int,
  insurance: literal('yes', 'no') as Shape<string>,
  status: optional(literal('cancelled')),
});

export type Flight = RecordOf<typeof flight.fields>;
export type DirectFlight = RecordOf<typeof directFlight.fields>;
export type FlightInfo = RecordOf<typeof flightInfo.fields>;
export type Passenger = RecordOf<typeof passenger.fields>;
export type Payment = RecordOf<typeof payment.fields>;
export type User = RecordOf<typeof user.fields>;
export type Reservation = RecordOf<typeof reservation.fields>;

export const database = record('FlightDB', { flights: dict(flight), users: dict(user), reservations: dict(reservation) }, 'forbid');
