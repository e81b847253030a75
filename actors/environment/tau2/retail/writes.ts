/** Retail tools that change orders and users. Checks in the benchmark's order; money in IEEE doubles in its order too. */
import { z } from 'zod';
import { round2 } from '../python/float.ts';
import { validate } from '../python/shape.ts';
import { count, equals, hashable, iterate, length, sorted, str, valueError } from '../python/values.ts';
import { type Tau2Tool, tau2Tool } from '../toolkit.ts';
import { address, type Order, type OrderPayment, type Variant } from './data.ts';
import type { RetailWorld } from './world.ts';

const CONFIRM = 'Explain the details and ask the user for an explicit confirmation (yes/no) first.';
const order_id = z.string().describe("such as '#W0000000', with the '#'");
const method = (what: string) =>
  z.string().describe(`${what}, such as 'gift_card_0000000' or 'credit_card_0000000', from the user or the order`);
const items = (what: string) => z.array(z.string()).describe(`${what}, each such as '1008292230'; one may stand there twice`);
const addressFields = {
  address1: z.string().describe("first line, such as '123 Main St'"),
  address2: z.string().describe("second line, such as 'Apt 1' or ''"),
  city: z.string().describe("such as 'San Francisco'"),
  state: z.string().describe("such as 'CA'"),
  country: z.string().describe("such as 'USA'"),
  zip: z.string().describe("such as '12345'"),
};

/** Raises where a list names an item more often than the order has it. */
function countItems(order: Readonly<Order>, ids: unknown, message: (id: string) => string): void {
  const all = order.items.map((item) => item.item_id);
  for (const id of iterate(ids)) if (count(ids, id) > count(all, id)) throw valueError(message(str(id)));
}

/** The variants that the old items are swapped for, and the difference in price; an int 0 where there are none. */
function priceNew(world: RetailWorld, order: Readonly<Order>, ids: unknown, newIds: unknown, mayStay: boolean) {
  const before = iterate(ids);
  const after = iterate(newIds);
  const pairs: { id: unknown; variant: Readonly<Variant> }[] = [];
  let difference: number | bigint = 0n;
  for (let i = 0; i < Math.min(before.length, after.length); i++) {
    const [id, newId] = [before[i], after[i]];
    if (!mayStay && equals(id, newId)) throw valueError('The new item id should be different from the old item id');
    const item = order.items.find((candidate) => equals(candidate.item_id, id));
    if (!item) throw valueError(`Item ${str(id)} not found`);
    const variant = world.variant(item.product_id, newId);
    if (!variant.available) throw valueError(`New item ${str(newId)} not found or available`);
    difference = Number(difference) + (variant.price - item.price);
    pairs.push({ id, variant });
  }
  return { pairs, difference };
}

function pay(type: OrderPayment['transaction_type'], amount: number, methodId: string): OrderPayment {
  return { transaction_type: type, amount, payment_method_id: methodId };
}

const cancel = tau2Tool({
  name: 'cancel_pending_order',
  kind: 'write',
  description: `Cancels an order that is pending; a processed or delivered one cannot be cancelled. ${CONFIRM} The payment goes back: at once to a gift card, in 5 to 7 business days otherwise. Returns the order.`,
  parameters: z.object({ order_id, reason: z.string().describe("'no longer needed' or 'ordered by mistake'") }),
  run(world: RetailWorld, args) {
    const order = world.order(args.order_id);
    if (order.status !== 'pending') throw valueError('Non-pending order cannot be cancelled');
    hashable(args.reason);
    if (args.reason !== 'no longer needed' && args.reason !== 'ordered by mistake') throw valueError('Invalid reason');
    const refunds: OrderPayment[] = [];
    for (const paid of order.payment_history) {
      if (world.fixes.has('refunds') && paid.transaction_type === 'refund') continue;
      refunds.push(pay('refund', paid.amount, paid.payment_method_id));
      world.credit(order.user_id, paid.payment_method_id, paid.amount, round2);
    }
    const mine = world.tables.orders.edit(order.order_id);
    mine.status = 'cancelled';
    mine.cancel_reason = args.reason;
    mine.payment_history.push(...refunds);
    return world.tables.orders.show(order.order_id);
  },
});

const exchange = tau2Tool({
  name: 'exchange_delivered_order_items',
  kind: 'write',
  description: `Exchanges items of a delivered order for others of the same products. A delivered order can be returned or exchanged only once. ${CONFIRM}`,
  parameters: z.object({
    order_id,
    item_ids: items('the items to exchange'),
    new_item_ids: items('the items to get: each of the same product as the one in its place'),
    payment_method_id: method('pays or receives the difference in price'),
  }),
  run(world: RetailWorld, args) {
    const order = world.order(args.order_id);
    if (order.status !== 'delivered') throw valueError('Non-delivered order cannot be exchanged');
    countItems(order, args.item_ids, (id) => `Number of ${id} not found.`);
    if (length(args.item_ids) !== length(args.new_item_ids)) throw valueError('The number of items to be exchanged should match.');
    const { difference } = priceNew(world, order, args.item_ids, args.new_item_ids, true);
    const rounded = typeof difference === 'bigint' ? difference : round2(difference);
    const paying = world.paymentMethod(order.user_id, args.payment_method_id);
    if (paying.source === 'gift_card' && paying.balance < rounded) {
      throw valueError('Insufficient gift card balance to pay for the price difference');
    }
    const [before, after] = [sorted(args.item_ids), sorted(args.new_item_ids)];
    const mine = world.tables.orders.edit(order.order_id);
    mine.status = 'exchange requested';
    mine.exchange_items = before as string[];
    mine.exchange_new_items = after as string[];
    mine.exchange_payment_method_id = paying.id;
    mine.exchange_price_difference = rounded;
    return world.tables.orders.show(order.order_id);
  },
});

const returnItems = tau2Tool({
  name: 'return_delivered_order_items',
  kind: 'write',
  description: `Returns items of a delivered order; its status becomes 'return requested', and an email tells the user how to send them back. ${CONFIRM}`,
  parameters: z.object({
    order_id,
    item_ids: items('the items to return'),
    payment_method_id: method('receives the refund: the original one, or a gift card'),
  }),
  run(world: RetailWorld, args) {
    const order = world.order(args.order_id);
    if (order.status !== 'delivered') throw valueError('Non-delivered order cannot be returned');
    const receiving = world.paymentMethod(order.user_id, args.payment_method_id);
    if (receiving.source !== 'gift_card' && args.payment_method_id !== order.payment_history[0]?.payment_method_id) {
      throw valueError('Payment method should be the original payment method');
    }
    countItems(order, args.item_ids, () => 'Some item not found');
    const back = sorted(args.item_ids);
    const mine = world.tables.orders.edit(order.order_id);
    mine.status = 'return requested';
    mine.return_items = back as string[];
    mine.return_payment_method_id = receiving.id;
    return world.tables.orders.show(order.order_id);
  },
});

const modifyAddress = tau2Tool({
  name: 'modify_pending_order_address',
  kind: 'write',
  description: `Changes where a pending order is sent. ${CONFIRM}`,
  parameters: z.object({ order_id, ...addressFields }),
  run(world: RetailWorld, { order_id: id, ...fields }) {
    const order = world.order(id);
    if (!order.status.includes('pending')) throw valueError('Non-pending order cannot be modified');
    const there = validate('UserAddress', address, fields);
    world.tables.orders.edit(order.order_id).address = there;
    return world.tables.orders.show(order.order_id);
  },
});

const modifyUserAddress = tau2Tool({
  name: 'modify_user_address',
  kind: 'write',
  description: `Changes a user's default address. ${CONFIRM}`,
  parameters: z.object({ user_id: z.string().describe("such as 'sara_doe_496'"), ...addressFields }),
  run(world: RetailWorld, { user_id, ...fields }) {
    const user = world.user(user_id);
    const there = validate('UserAddress', address, fields);
    world.tables.users.edit(user.user_id).address = there;
    return world.tables.users.show(user.user_id);
  },
});

const modifyPayment = tau2Tool({
  name: 'modify_pending_order_payment',
  kind: 'write',
  description: `Changes the payment method of a pending order. ${CONFIRM}`,
  parameters: z.object({ order_id, payment_method_id: method('pays instead') }),
  run(world: RetailWorld, args) {
    const order = world.order(args.order_id);
    if (!order.status.includes('pending')) throw valueError('Non-pending order cannot be modified');
    const paying = world.paymentMethod(order.user_id, args.payment_method_id);
    const first = order.payment_history[0];
    if (order.payment_history.length !== 1 || first?.transaction_type !== 'payment') {
      throw valueError('There should be exactly one payment for a pending order');
    }
    if (first.payment_method_id === args.payment_method_id) {
      throw valueError('The new payment method should be different from the current one');
    }
    const { amount, payment_method_id: before } = first;
    if (paying.source === 'gift_card' && paying.balance < amount) {
      throw valueError('Insufficient gift card balance to pay for the order');
    }
    world.tables.orders
      .edit(order.order_id)
      .payment_history.push(pay('payment', amount, args.payment_method_id as string), pay('refund', amount, before));
    world.credit(order.user_id, args.payment_method_id as string, -amount, round2);
    world.credit(order.user_id, before, amount, round2);
    return world.tables.orders.show(order.order_id);
  },
});

const modifyItems = tau2Tool({
  name: 'modify_pending_order_items',
  kind: 'write',
  description: `Swaps items of a pending order for others of the same products. Can be done only once for an order. ${CONFIRM}`,
  parameters: z.object({
    order_id,
    item_ids: items('the items to swap'),
    new_item_ids: items('the items to get: each of the same product as the one in its place'),
    payment_method_id: method('pays or receives the difference in price'),
  }),
  run(world: RetailWorld, args) {
    const order = world.order(args.order_id);
    if (order.status !== 'pending') throw valueError('Non-pending order cannot be modified');
    countItems(order, args.item_ids, (id) => `${id} not found`);
    if (length(args.item_ids) !== length(args.new_item_ids)) throw valueError('The number of items to be exchanged should match');
    const { pairs, difference: exact } = priceNew(world, order, args.item_ids, args.new_item_ids, false);
    const difference = Number(exact);
    const paying = world.paymentMethod(order.user_id, args.payment_method_id);
    if (paying.source === 'gift_card' && paying.balance < difference) {
      throw valueError('Insufficient gift card balance to pay for the new item');
    }
    const mine = world.tables.orders.edit(order.order_id);
    // The difference is not rounded here: 0.04999999999999716 enters the books.
    mine.payment_history.push(pay(difference > 0 ? 'payment' : 'refund', Math.abs(difference), args.payment_method_id as string));
    world.credit(order.user_id, args.payment_method_id as string, -difference, round2);
    const last = pairs.at(-1)?.variant;
    for (const { id, variant } of pairs) {
      const item = mine.items.find((candidate) => equals(candidate.item_id, id));
      if (!item) throw valueError(`Item ${str(id)} not found`);
      const from = world.fixes.has('variants') ? variant : last!;
      item.item_id = variant.item_id;
      item.price = from.price;
      item.options = from.options;
    }
    mine.status = 'pending (item modified)';
    return world.tables.orders.show(order.order_id);
  },
});

export const writes: Tau2Tool<RetailWorld>[] = [
  cancel,
  exchange,
  returnItems,
  modifyAddress,
  modifyUserAddress,
  modifyPayment,
  modifyItems,
];
