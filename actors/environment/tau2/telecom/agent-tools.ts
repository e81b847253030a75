/** The telecom agent's 13 tools, and the methods that tasks call on the company's side. */
import { z } from 'zod';
import { transferTool } from '../common-tools.ts';
import { arithmetic } from '../python/arithmetic.ts';
import { fixed2, floatRepr } from '../python/float.ts';
import { dumps, quote } from '../python/json.ts';
import { list } from '../python/shape.ts';
import { equals, lower, noAttribute, numberOf, str, typeError, unordered, valueError } from '../python/values.ts';
import { Toolkit, tau2Tool } from '../toolkit.ts';
import { type Bill, bill, type Customer, customer, device, line, plan } from './data.ts';
import { type TelecomWorld, TODAY } from './world.ts';

const ids = {
  customer: z.string().describe('id of the customer'),
  line: z.string().describe('id of the line'),
};
const ofLine = { customer_id: ids.customer, line_id: ids.line };

const answerWithLine = (message: string, world: TelecomWorld, id: unknown): string =>
  `{"message": ${quote(message)}, "line": ${line.write(world.line(id), false)}}`;

function charge(world: TelecomWorld, customerId: unknown, amount: number, description: string): void {
  const owner: Customer = world.customer(customerId);
  let draft: Bill | undefined = owner.bill_ids.map((id) => world.bill(id)).find((b) => b.status === 'Draft');
  if (!draft) {
    draft = {
      bill_id: world.newBillId(),
      customer_id: owner.customer_id,
      period_start: '2025-03-01',
      period_end: '2025-03-31',
      issue_date: '2025-03-01',
      total_due: 0,
      due_date: '2025-03-15',
      line_items: [],
      status: 'Draft',
    };
    world.db.bills.push(draft);
    owner.bill_ids.push(draft.bill_id);
  }
  draft.line_items.push({ description, amount, date: TODAY, item_type: amount < 0 ? 'Credit' : 'Charge' });
  draft.total_due += amount;
}

const tools = [
  tau2Tool({
    name: 'get_customer_by_phone',
    kind: 'read',
    description: 'A customer by the phone number of the contact or of a line.',
    parameters: z.object({ phone_number: z.string().describe('the number') }),
    run: (world: TelecomWorld, { phone_number }) => customer.write(world.customerOfPhone(phone_number), false),
  }),
  tau2Tool({
    name: 'get_customer_by_id',
    kind: 'read',
    description: 'A customer by id.',
    parameters: z.object({ customer_id: ids.customer }),
    run: (world: TelecomWorld, { customer_id }) => customer.write(world.customer(customer_id), false),
  }),
  tau2Tool({
    name: 'get_customer_by_name',
    kind: 'read',
    description: 'Customers of a name and date of birth; there may be several, or none.',
    parameters: z.object({ full_name: z.string().describe('first and last name'), dob: z.string().describe('date of birth, YYYY-MM-DD') }),
    run: (world: TelecomWorld, { full_name, dob }) =>
      list(customer).write(
        world.db.customers.filter((c) => c.full_name.toLowerCase() === lower(full_name) && equals(c.date_of_birth, dob)),
        false,
      ),
  }),
  tau2Tool({
    name: 'get_details_by_id',
    kind: 'read',
    description: 'A customer, line, device, bill or plan by its id; the first letter tells which.',
    parameters: z.object({ id: z.string().describe("such as 'C1001', 'L1001', 'D1001', 'B1001', 'P1001'") }),
    run(world: TelecomWorld, { id }) {
      if (typeof id !== 'string') throw noAttribute(id, 'startswith');
      switch (id[0]) {
        case 'L':
          return line.write(world.line(id), false);
        case 'D':
          return device.write(world.device(id), false);
        case 'B':
          return bill.write(world.bill(id), false);
        case 'C':
          return customer.write(world.customer(id), false);
        case 'P':
          return plan.write(world.plan(id), false);
        default:
          throw valueError(`Unknown ID format or type: ${id}`);
      }
    },
  }),
  tau2Tool({
    name: 'suspend_line',
    kind: 'write',
    description: 'Suspends an active line, for six months at most. A holding fee is due each month.',
    parameters: z.object({ ...ofLine, reason: z.string().describe('why') }),
    run(world: TelecomWorld, { customer_id, line_id }) {
      const target = world.lineOf(customer_id, line_id);
      if (target.status !== 'Active') throw valueError('Line must be active to suspend');
      target.status = 'Suspended';
      target.suspension_start_date = TODAY;
      return answerWithLine('Line suspended successfully. $5/month holding fee will apply.', world, line_id);
    },
  }),
  tau2Tool({
    name: 'resume_line',
    kind: 'write',
    description: 'Resumes a line that is suspended or waits for its activation.',
    parameters: z.object(ofLine),
    run(world: TelecomWorld, { customer_id, line_id }) {
      const target = world.lineOf(customer_id, line_id);
      if (target.status !== 'Suspended' && target.status !== 'Pending Activation') throw valueError('Line must be suspended to resume');
      target.status = 'Active';
      target.suspension_start_date = null;
      return answerWithLine('Line resumed successfully', world, line_id);
    },
  }),
  tau2Tool({
    name: 'get_bills_for_customer',
    kind: 'read',
    description: "A customer's bills, the newest first.",
    parameters: z.object({ customer_id: ids.customer, limit: z.number().int().default(12).describe('how many at most') }),
    run(world: TelecomWorld, { customer_id, limit = 12n }) {
      const bills = world.customer(customer_id).bill_ids.map((id) => world.bill(id));
      bills.sort((a, b) => (a.issue_date === b.issue_date ? 0 : a.issue_date < b.issue_date ? 1 : -1));
      if (limit === null) return list(bill).write(bills, false);
      if (typeof limit !== 'bigint' && typeof limit !== 'boolean') {
        throw typeError('slice indices must be integers or None or have an __index__ method');
      }
      return list(bill).write(bills.slice(0, Number(limit)), false);
    },
  }),
  tau2Tool({
    name: 'send_payment_request',
    kind: 'write',
    description: "Asks the customer to pay a bill. Check first that no other bill awaits payment; the customer's next step is to pay.",
    parameters: z.object({ customer_id: ids.customer, bill_id: z.string().describe('id of the bill') }),
    run(world: TelecomWorld, { customer_id, bill_id }) {
      const owner = world.customer(customer_id);
      if (world.billsAwaitingPayment(owner).length > 0) throw valueError('A bill is already awaiting payment for this customer');
      if (!owner.bill_ids.some((id) => equals(id, bill_id))) {
        throw valueError(`Bill ${str(bill_id)} not found for customer ${str(customer_id)}`);
      }
      const due = world.bill(bill_id);
      due.status = 'Awaiting Payment';
      return `Payment request sent to the customer for bill ${due.bill_id}`;
    },
  }),
  tau2Tool({
    name: 'get_data_usage',
    kind: 'read',
    description: 'Data used and available on a line in this billing cycle.',
    parameters: z.object(ofLine),
    run(world: TelecomWorld, { customer_id, line_id }) {
      const target = world.lineOf(customer_id, line_id);
      const { data_limit_gb } = world.plan(target.plan_id);
      return dumps({
        line_id,
        data_used_gb: str(target.data_used_gb),
        data_limit_gb: str(data_limit_gb),
        data_refueling_gb: str(target.data_refueling_gb),
        cycle_end_date: '2025-02-28',
      });
    },
  }),
  tau2Tool({
    name: 'enable_roaming',
    kind: 'write',
    description: 'Allows international roaming on a line.',
    parameters: z.object(ofLine),
    run(world: TelecomWorld, { customer_id, line_id }) {
      const target = world.lineOf(customer_id, line_id);
      if (target.roaming_enabled) return 'Roaming was already enabled';
      target.roaming_enabled = true;
      return 'Roaming enabled successfully';
    },
  }),
  tau2Tool({
    name: 'disable_roaming',
    kind: 'write',
    description: 'Forbids international roaming on a line.',
    parameters: z.object(ofLine),
    run(world: TelecomWorld, { customer_id, line_id }) {
      const target = world.lineOf(customer_id, line_id);
      if (!target.roaming_enabled) return 'Roaming was already disabled';
      target.roaming_enabled = false;
      return 'Roaming disabled successfully';
    },
  }),
  transferTool<TelecomWorld>(),
  tau2Tool({
    name: 'refuel_data',
    kind: 'write',
    description: 'Adds data to a line and charges the customer by the price of the plan.',
    parameters: z.object({ ...ofLine, gb_amount: z.number().describe('gigabytes to add') }),
    run(world: TelecomWorld, { customer_id, line_id, gb_amount }) {
      const target = world.lineOf(customer_id, line_id);
      const gb = numberOf(gb_amount);
      if (gb === undefined) throw unordered('<=', gb_amount, 0n);
      if (gb <= 0) throw valueError('Refuel amount must be positive');
      const { data_refueling_price_per_gb: price } = world.plan(target.plan_id);
      const due = Number(arithmetic('*', gb, price));
      target.data_refueling_gb = Number(arithmetic('+', target.data_refueling_gb, gb));
      charge(world, customer_id, due, `Data refueling: ${str(gb_amount)} GB at $${floatRepr(price)}/GB`);
      return dumps({
        message: `Successfully added ${str(gb_amount)} GB of data for line ${str(line_id)} for $${fixed2(due)}`,
        new_data_refueling_gb: str(target.data_refueling_gb),
        charge: str(due),
      });
    },
  }),
];

export const telecomTools = new Toolkit<TelecomWorld>('TelecomTools', tools, {
  set_data_usage(world, { customer_id, line_id, data_used_gb }) {
    world.lineOf(customer_id, line_id).data_used_gb = data_used_gb as number;
    return `Data usage set to ${str(data_used_gb)} GB for line ${str(line_id)}`;
  },
  suspend_line_for_overdue_bill(world, { customer_id, line_id, new_bill_id, contract_ended }) {
    const target = world.line(line_id);
    if (target.status !== 'Active') throw valueError('Line must be active to suspend for unpaid bill');
    const amount = world.plan(target.plan_id).price_per_month;
    if (amount <= 0) throw valueError('Amount must be positive for overdue bill');
    const owner = world.customer(customer_id);
    if (owner.bill_ids.some((id) => world.bill(id).status === 'Overdue')) throw valueError('Customer already has an overdue bill');
    world.db.bills.push({
      bill_id: str(new_bill_id),
      customer_id: owner.customer_id,
      period_start: '2025-01-01',
      period_end: '2025-01-31',
      issue_date: '2025-01-01',
      total_due: amount,
      due_date: '2025-01-15',
      line_items: [{ description: `Charge for line ${target.line_id}`, amount, date: TODAY, item_type: 'Charge' }],
      status: 'Overdue',
    });
    owner.bill_ids.push(str(new_bill_id));
    target.status = 'Suspended';
    target.suspension_start_date = TODAY;
    if (contract_ended) target.contract_end_date = '2025-01-31';
    return `Line ${str(line_id)} suspended for unpaid bill ${str(new_bill_id)}. Contract ended: ${str(contract_ended)}`;
  },
  assert_data_refueling_amount: (world, { customer_id, line_id, expected_amount }) =>
    Math.abs(Number(arithmetic('-', world.lineOf(customer_id, line_id).data_refueling_gb, expected_amount))) < 1e-6,
  assert_line_status: (world, { customer_id, line_id, expected_status }) =>
    equals(world.lineOf(customer_id, line_id).status, expected_status),
  assert_overdue_bill_exists(world, { customer_id, overdue_bill_id }) {
    if (!world.customer(customer_id).bill_ids.some((id) => equals(id, overdue_bill_id))) {
      throw valueError(`Overdue bill ${str(overdue_bill_id)} not found`);
    }
    if (world.bill(overdue_bill_id).status !== 'Overdue') throw valueError(`Overdue bill ${str(overdue_bill_id)} is not overdue`);
    return true;
  },
  assert_no_overdue_bill: (world, { overdue_bill_id }) => {
    const found = world.db.bills.find((b) => equals(b.bill_id, overdue_bill_id));
    return found === undefined || found.status === 'Paid';
  },
});
