/** Faults of the original: each as it is, and put right. */
import t from 'tap';
import { tau2 } from '../../actors/environment/index.ts';
import { PythonError } from '../../actors/environment/tau2/python/values.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const { Session, tau2Call, tau2Data } = tau2;
const session = (domain: tau2.DomainName, ...fixes: tau2.Fix[]) =>
  new Session(tau2Data(dataFolder, domain).domain, { fixes: new Set(fixes) });

t.test('fixes put one thing right each', skip, async (t) => {
  // variants: two items modified together. The original gives both the last one's price and options.
  const { domain } = tau2Data(dataFolder, 'retail');
  const world = domain.world(NO_FIXES) as {
    tables: { orders: { entries(): Iterable<[string, Order]> }; products: { find(id: string): Product } };
  };
  interface Order {
    order_id: string;
    status: string;
    items: { item_id: string; product_id: string }[];
    payment_history: { payment_method_id: string }[];
  }
  interface Product {
    variants: Map<string, { item_id: string; available: boolean; price: number }>;
  }
  const pick = [...world.tables.orders.entries()]
    .map(([, order]) => order)
    .find((order) => {
      const ids = new Set(order.items.map((item) => item.item_id));
      return (
        order.status === 'pending' &&
        ids.size >= 2 &&
        !order.payment_history[0]!.payment_method_id.startsWith('gift') &&
        swaps(order).length >= 2
      );
    })!;
  function swaps(order: Order) {
    return order.items.flatMap((item) => {
      const other = [...world.tables.products.find(item.product_id).variants.values()].find(
        (v) => v.available && v.item_id !== item.item_id,
      );
      return other ? [{ from: item.item_id, to: other }] : [];
    });
  }
  const two = swaps(pick).slice(0, 2);
  const modify = (pairs: typeof two) => ({
    name: 'modify_pending_order_items',
    arguments: {
      order_id: pick.order_id,
      item_ids: pairs.map((p) => p.from),
      new_item_ids: pairs.map((p) => p.to.item_id),
      payment_method_id: pick.payment_history[0]!.payment_method_id,
    },
  });
  const prices = (...fixes: tau2.Fix[]) => {
    const answer = JSON.parse(session('retail', ...fixes).respond(modify(two)).content) as { items: { item_id: string; price: number }[] };
    return two.map((p) => answer.items.find((item) => item.item_id === p.to.item_id)!.price);
  };
  t.strictSame(prices(), [two[1]!.to.price, two[1]!.to.price]);
  t.strictSame(prices('variants'), [two[0]!.to.price, two[1]!.to.price]);
  // The order of the items changes the original's database, and no longer the fixed one's (but for the order of the same two payments).
  const after = (pairs: typeof two, ...fixes: tau2.Fix[]) => {
    const s = session('retail', ...fixes);
    s.respond(modify(pairs));
    return s.domain.hashes(s.world).agent;
  };
  t.not(after(two), after([...two].reverse()));
  t.equal(after(two, 'variants'), after([...two].reverse(), 'variants'));

  // communicate: a number inside another.
  const told = (text: string, ...fixes: tau2.Fix[]) =>
    tau2.evaluateUnjudged({
      domain: tau2Data(dataFolder, 'mock').domain,
      task: {
        id: 'x',
        user_scenario: { instructions: '' },
        evaluation_criteria: { communicate_info: ['10'], reward_basis: ['COMMUNICATE'] },
      },
      messages: [{ role: 'assistant', content: text }],
      termination: 'user_stop',
      fixes: new Set(fixes),
    }).reward;
  t.strictSame(
    [told('in 2010'), told('in 2010', 'communicate'), told('$10.', 'communicate'), told('10.5', 'communicate'), told('1,0')],
    [1, 0, 1, 0, 1],
  );

  // assertions: one that raises.
  const asserted = (...fixes: tau2.Fix[]) =>
    tau2.evaluateUnjudged({
      domain: tau2Data(dataFolder, 'mock').domain,
      task: {
        id: 'x',
        user_scenario: { instructions: '' },
        evaluation_criteria: {
          env_assertions: [
            { env_type: 'assistant', func_name: 'assert_task_status', arguments: { task_id: 'none', expected_status: 'pending' } },
          ],
          reward_basis: ['ENV_ASSERTION'],
        },
      },
      messages: [],
      termination: 'user_stop',
      fixes: new Set(fixes),
    }).reward;
  t.throws(() => asserted(), PythonError);
  t.equal(asserted('assertions'), 0);

  // atomic: a certificate listed twice is lost, unless a call that fails changes nothing.
  const air = tau2Data(dataFolder, 'airline').domain.world(NO_FIXES) as unknown as {
    tables: {
      users: { entries(): Iterable<[string, { user_id: string; payment_methods: Map<string, { source: string; amount: number }> }]> };
      flights: {
        entries(): Iterable<
          [
            string,
            {
              flight_number: string;
              dates: Map<string, { status: string; prices: Map<string, bigint>; available_seats: Map<string, number> }>;
            },
          ]
        >;
      };
    };
  };
  const rich = [...air.tables.users.entries()].flatMap(([, u]) =>
    [...u.payment_methods].filter(([, m]) => m.source === 'certificate' && m.amount >= 100).map(([id]) => ({ user: u.user_id, id })),
  )[0]!;
  const seat = [...air.tables.flights.entries()].flatMap(([, f]) =>
    [...f.dates]
      .filter(
        ([, d]) =>
          d.status === 'available' &&
          d.available_seats.get('economy')! > 0 &&
          d.prices.get('economy')! % 2n === 0n &&
          d.prices.get('economy')! <= 200,
      )
      .map(([date, d]) => ({ flight_number: f.flight_number, date, price: d.prices.get('economy')! })),
  )[0]!;
  const book = tau2Call({
    name: 'book_reservation',
    arguments: {
      user_id: rich.user,
      origin: 'A',
      destination: 'B',
      flight_type: 'one_way',
      cabin: 'economy',
      flights: [{ flight_number: seat.flight_number, date: seat.date }],
      passengers: [{ first_name: 'A', last_name: 'B', dob: '1990-01-01' }],
      payment_methods: [
        { payment_id: rich.id, amount: Number(seat.price) / 2 },
        { payment_id: rich.id, amount: Number(seat.price) / 2 },
      ],
      total_baggages: 0,
      nonfree_baggages: 0,
      insurance: 'no',
    },
  });
  const has = (...fixes: tau2.Fix[]) => {
    const s = session('airline', ...fixes);
    const answer = s.respond(book);
    t.strictSame(answer, { content: `Error: '${rich.id}'`, error: true });
    return s.respond({ name: 'get_user_details', arguments: { user_id: rich.user } }).content.includes(rich.id);
  };
  t.strictSame([has(), has('atomic')], [false, true]);
});
