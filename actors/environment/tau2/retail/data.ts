/** The retail database: its models, in the order in which their fields print. */
import { bool, dict, float, list, literal, optional, type RecordOf, record, type Shape, text, union } from '../python/shape.ts';

export const variant = record('Variant', { item_id: text, options: dict(text), available: bool, price: float as Shape<number> });
export const product = record('Product', { name: text, product_id: text, variants: dict(variant) });

export const address = record('UserAddress', { address1: text, address2: text, city: text, country: text, state: text, zip: text });

const card = record('CreditCard', { source: literal('credit_card'), id: text, brand: text, last_four: text });
const gift = record('GiftCard', { source: literal('gift_card'), id: text, balance: float as Shape<number> });
const paypal = record('Paypal', { source: literal('paypal'), id: text });
export type PaymentMethod = RecordOf<typeof card.fields> | RecordOf<typeof gift.fields> | RecordOf<typeof paypal.fields>;
export const paymentMethod = union<PaymentMethod>('source', { credit_card: card, gift_card: gift, paypal });

export const user = record('User', {
  user_id: text,
  name: record('UserName', { first_name: text, last_name: text }),
  address,
  email: text,
  payment_methods: dict(paymentMethod),
  orders: list(text),
});

export const payment = record('OrderPayment', {
  transaction_type: literal('payment', 'refund'),
  amount: float as Shape<number>,
  payment_method_id: text,
});

export const order = record('Order', {
  order_id: text,
  user_id: text,
  address,
  items: list(record('OrderItem', { name: text, product_id: text, item_id: text, price: float as Shape<number>, options: dict(text) })),
  status: literal(
    'processed',
    'pending',
    'pending (item modified)',
    'delivered',
    'cancelled',
    'exchange requested',
    'return requested',
  ) as Shape<string>,
  fulfillments: list(record('OrderFullfilment', { tracking_id: list(text), item_ids: list(text) })),
  payment_history: list(payment),
  cancel_reason: optional(literal('no longer needed', 'ordered by mistake')) as Shape<string | null>,
  exchange_items: optional(list(text)),
  exchange_new_items: optional(list(text)),
  exchange_payment_method_id: optional(text),
  exchange_price_difference: optional(float),
  return_items: optional(list(text)),
  return_payment_method_id: optional(text),
});

export type Variant = RecordOf<typeof variant.fields>;
export type Product = RecordOf<typeof product.fields>;
export type User = RecordOf<typeof user.fields>;
export type Order = RecordOf<typeof order.fields>;
export type OrderPayment = RecordOf<typeof payment.fields>;

export const database = record('RetailDB', { products: dict(product), users: dict(user), orders: dict(order) }, 'forbid');
