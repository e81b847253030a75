/**
 * Tasks over the benchmark's own database: one customer, one wish about one thing that was ordered, and the one call that fulfils it, or none
 * where it cannot be done. Customers, and so their orders, belong to training or to validation.
 */
import { CounterRandom } from '../../random.ts';
import { isValidationTask } from '../../seeds.ts';
import type { DomainData } from '../data.ts';
import type { Order, PaymentMethod, Product, User, Variant } from '../retail/data.ts';
import type { RetailWorld } from '../retail/world.ts';
import type { Tau2Task } from '../tasks.ts';
import { REASONS, SOURCES, slug, spoken } from './words.ts';

export const WISHES = ['cancel', 'return', 'change', 'address', 'pay'] as const;
export type WishKind = (typeof WISHES)[number];

export interface GeneratedTask {
  seed: number;
  user: Readonly<User>;
  kind: WishKind;
  /** The order and item that it is about. */
  order: Readonly<Order>;
  item: Readonly<Order['items'][number]>;
  /** The wish, in the words of the domain. */
  wish: string;
  /** The call that fulfils it; undefined where it has to be denied. */
  call: { name: string; arguments: Record<string, unknown> } | undefined;
  /** As the benchmark's evaluator reads it. */
  task: Tau2Task;
}

interface Shop {
  users: Map<string, Readonly<User>>;
  orders: Map<string, Readonly<Order>>;
  products: Map<string, Readonly<Product>>;
  /** Ids of customers, held out or not. */
  held: string[];
  seen: string[];
}

const shops = new WeakMap<DomainData, Shop>();
/** One customer in five is held out. */
const HELD = 5;
/** Share of the wishes that have to be denied. */
const DENIED = 0.25;

export function shopOf(data: DomainData): Shop {
  let shop = shops.get(data);
  if (!shop) {
    const { tables } = data.domain.world(new Set()) as RetailWorld;
    const users = new Map(tables.users.entries());
    const able = [...users.keys()].sort().filter((id) => users.get(id)!.orders.length > 0);
    shop = {
      users,
      orders: new Map(tables.orders.entries()),
      products: new Map(tables.products.entries()),
      held: able.filter((_, i) => i % HELD === 0),
      seen: able.filter((_, i) => i % HELD !== 0),
    };
    shops.set(data, shop);
  }
  return shop;
}

export function generateTask(data: DomainData, seed: number): GeneratedTask {
  const shop = shopOf(data);
  const random = new CounterRandom(seed, 0x67656e);
  const able = !random.chance(DENIED);
  // Not every customer can have every wish: drawn again until it fits.
  for (;;) {
    const user = shop.users.get(random.pick(isValidationTask(seed) ? shop.held : shop.seen))!;
    const kind = WISHES[random.weighted([2, 3, 5, 1, 1])]!;
    const drawn = draw(shop, user, kind, random);
    if (!drawn || (drawn.call !== undefined) !== able) continue;
    const { first_name, last_name } = user.name;
    const wish = `${slug(first_name)} ${slug(last_name)} zip ${spoken(user.address.zip)} wants ${drawn.wish}`;
    const actions = drawn.call ? [{ action_id: '0', requestor: 'assistant' as const, ...drawn.call }] : [];
    const task: Tau2Task = {
      id: String(seed),
      user_scenario: { instructions: wish },
      evaluation_criteria: { actions, reward_basis: ['DB'] },
    };
    return { seed, user, kind, ...drawn, wish, task };
  }
}

type Drawn = Pick<GeneratedTask, 'order' | 'item' | 'wish' | 'call'>;

function draw(shop: Shop, user: Readonly<User>, kind: WishKind, random: CounterRandom): Drawn | undefined {
  const orders = user.orders.map((id) => shop.orders.get(id)!);
  const order = random.pick(orders);
  const item = random.pick(order.items);
  // The product says which order is meant, so it must be there once.
  if (orders.flatMap((o) => o.items).filter((i) => i.product_id === item.product_id).length !== 1) return undefined;
  const name = slug(item.name);
  const pending = order.status === 'pending';
  const paid = order.payment_history[0]!.payment_method_id;
  const possible = (wanted: boolean, call: NonNullable<Drawn['call']>) => (wanted ? call : undefined);
  switch (kind) {
    case 'cancel': {
      const reason = random.pick(Object.keys(REASONS) as (keyof typeof REASONS)[]);
      const call = { name: 'cancel_pending_order', arguments: { order_id: order.order_id, reason: REASONS[reason] } };
      return { order, item, wish: `cancel the ${name} order ${reason}`, call: possible(pending, call) };
    }
    case 'return': {
      const gift = methods(user).find((m) => m.source === 'gift_card');
      const original = user.payment_methods.get(paid);
      if (!original) return undefined;
      const method = gift && random.chance(0.5) ? gift : original;
      if (methods(user).filter((m) => m.source === method.source).length > 1) return undefined;
      const args = { order_id: order.order_id, item_ids: [item.item_id], payment_method_id: method.id };
      return {
        order,
        item,
        wish: `return the ${name} to ${SOURCES[method.source]}`,
        call: possible(order.status === 'delivered', { name: 'return_delivered_order_items', arguments: args }),
      };
    }
    case 'change': {
      const variant = random.pick(neighbours(shop.products.get(item.product_id)!, item));
      if (!variant) return undefined;
      const value = [...variant.options].find(([key, value]) => item.options.get(key) !== value)![1];
      const arguments_ = { order_id: order.order_id, item_ids: [item.item_id], new_item_ids: [variant.item_id], payment_method_id: paid };
      const method = user.payment_methods.get(paid);
      const short = method?.source === 'gift_card' && method.balance < variant.price - item.price;
      if (!method || short) return undefined;
      const tool = pending ? 'modify_pending_order_items' : order.status === 'delivered' ? 'exchange_delivered_order_items' : undefined;
      return {
        order,
        item,
        wish: `change the ${name} to ${slug(value)}`,
        call: tool && variant.available ? { name: tool, arguments: arguments_ } : undefined,
      };
    }
    case 'address': {
      const home = user.address;
      if (order.address.address1 === home.address1 && order.address.zip === home.zip) return undefined;
      const call = { name: 'modify_pending_order_address', arguments: { order_id: order.order_id, ...home } };
      return { order, item, wish: `send the ${name} order home`, call: possible(pending, call) };
    }
    case 'pay': {
      const other = methods(user).find((m) => m.id !== paid);
      if (!other || order.payment_history.length !== 1) return undefined;
      if (methods(user).filter((m) => m.source === other.source).length > 1) return undefined;
      if (other.source === 'gift_card' && other.balance < order.payment_history[0]!.amount) return undefined;
      const call = { name: 'modify_pending_order_payment', arguments: { order_id: order.order_id, payment_method_id: other.id } };
      return { order, item, wish: `pay the ${name} order by ${SOURCES[other.source]}`, call: possible(pending, call) };
    }
  }
}

const methods = (user: Readonly<User>): PaymentMethod[] => [...user.payment_methods.values()];

/** Variants that differ from an item in one option. */
export function neighbours(product: Readonly<Product>, item: { item_id: string; options: ReadonlyMap<string, string> }): Variant[] {
  return [...product.variants.values()].filter((variant) => {
    if (variant.item_id === item.item_id) return false;
    let different = 0;
    for (const [key, value] of variant.options) if (item.options.get(key) !== value) different++;
    return different === 1;
  });
}
