/** The telecom company's database: its models, in the order in which their fields print. Nothing but the declared fields is taken. */
import { bool, float, list, literal, moment, optional, type RecordOf, record, type Shape, text, withDefault } from '../python/shape.ts';

const amount = float as Shape<number>;
const or = <T>(shape: Shape<T>, value: T) => withDefault(shape, () => value);

/** A date and time; a date alone is its midnight. */
const dateTime: Shape<string> = {
  ...moment,
  load: (raw, report, path) => moment.load(typeof raw === 'string' && raw.length === 10 ? `${raw} 00:00:00` : raw, report, path),
};

export const plan = record(
  'Plan',
  { plan_id: text, name: text, data_limit_gb: amount, price_per_month: amount, data_refueling_price_per_gb: amount },
  'forbid',
);

export const device = record(
  'Device',
  {
    device_id: text,
    device_type: literal('phone', 'router', 'tablet', 'watch', 'other'),
    model: text,
    imei: optional(text),
    is_esim_capable: bool,
    activated: or(bool, false),
    activation_date: optional(dateTime),
    last_esim_transfer_date: optional(dateTime),
  },
  'forbid',
);

export const line = record(
  'Line',
  {
    line_id: text,
    phone_number: text,
    status: or(literal('Active', 'Suspended', 'Pending Activation', 'Closed') as Shape<string>, 'Pending Activation'),
    plan_id: text,
    device_id: optional(text),
    data_used_gb: or(amount, 0),
    data_refueling_gb: or(amount, 0),
    roaming_enabled: or(bool, false),
    contract_end_date: optional(moment),
    last_plan_change_date: optional(moment),
    last_sim_replacement_date: optional(moment),
    suspension_start_date: optional(moment),
  },
  'forbid',
);

const lineItem = record('LineItem', { description: text, amount, date: moment, item_type: text }, 'forbid');

export const bill = record(
  'Bill',
  {
    bill_id: text,
    customer_id: text,
    period_start: moment,
    period_end: moment,
    issue_date: moment,
    total_due: amount,
    due_date: moment,
    line_items: withDefault(list(lineItem), () => []),
    status: or(literal('Draft', 'Issued', 'Awaiting Payment', 'Paid', 'Overdue', 'Disputed') as Shape<string>, 'Draft'),
  },
  'forbid',
);

const paymentMethod = record(
  'PaymentMethod',
  { method_type: literal('Credit Card', 'Debit Card', 'PayPal'), account_number_last_4: text, expiration_date: text },
  'forbid',
);

export const customer = record(
  'Customer',
  {
    customer_id: text,
    full_name: text,
    date_of_birth: text,
    email: text,
    phone_number: text,
    address: record('Address', { street: text, city: text, state: text, zip_code: text }, 'forbid'),
    account_status: or(literal('Active', 'Suspended', 'Pending Verification', 'Closed') as Shape<string>, 'Pending Verification'),
    payment_methods: withDefault(list(paymentMethod), () => []),
    line_ids: withDefault(list(text), () => []),
    bill_ids: withDefault(list(text), () => []),
    // The default is a date, unlike what is read.
    created_at: or(dateTime, '2025-01-01'),
    last_extension_date: optional(moment),
    goodwill_credit_used_this_year: or(amount, 0),
  },
  'forbid',
);

const some = <T>(shape: Shape<T>): Shape<T[]> => withDefault(list(shape), () => []);

export const database = record(
  'TelecomDB',
  { plans: some(plan), customers: some(customer), lines: some(line), bills: some(bill), devices: some(device) },
  'forbid',
);

export type Plan = RecordOf<typeof plan.fields>;
export type Device = RecordOf<typeof device.fields>;
export type Line = RecordOf<typeof line.fields>;
export type Bill = RecordOf<typeof bill.fields>;
export type Customer = RecordOf<typeof customer.fields>;
export type TelecomDb = RecordOf<typeof database.fields>;
