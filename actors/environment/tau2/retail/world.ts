/** One environment's retail world, and the look-ups that its tools share. */
import { lookUp, valueError } from '../python/values.ts';
import type { Fixes } from '../settings.ts';
import { type BaseTable, Table } from '../table.ts';
import type { Order, PaymentMethod, Product, User, Variant } from './data.ts';

export interface RetailBase {
  products: BaseTable<Product>;
  users: BaseTable<User>;
  orders: BaseTable<Order>;
}

export class RetailWorld {
  readonly tables: { products: Table<Product>; users: Table<User>; orders: Table<Order> };
  readonly fixes: Fixes;

  constructor(base: RetailBase, fixes: Fixes) {
    this.tables = { products: new Table(base.products), users: new Table(base.users), orders: new Table(base.orders) };
    this.fixes = fixes;
  }

  order(id: unknown): Readonly<Order> {
    return this.tables.orders.find(id) ?? missing('Order not found');
  }

  user(id: unknown): Readonly<User> {
    return this.tables.users.find(id) ?? missing('User not found');
  }

  product(id: unknown): Readonly<Product> {
    return this.tables.products.find(id) ?? missing('Product not found');
  }

  variant(productId: unknown, variantId: unknown): Readonly<Variant> {
    return lookUp(this.product(productId).variants, variantId) ?? missing('Variant not found');
  }

  paymentMethod(userId: string, methodId: unknown): Readonly<PaymentMethod> {
    return lookUp(this.user(userId).payment_methods, methodId) ?? missing('Payment method not found');
  }

  /** Puts `amount` (negative: takes it) on a gift card, rounded by `round`; other methods hold no balance. */
  credit(userId: string, methodId: string, amount: number, round: (x: number) => number): void {
    if (this.paymentMethod(userId, methodId).source !== 'gift_card') return;
    const card = this.tables.users.edit(userId).payment_methods.get(methodId)!;
    if (card.source === 'gift_card') card.balance = round(card.balance + amount);
  }
}

function missing(message: string): never {
  throw valueError(message);
}
