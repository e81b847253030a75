/** One environment's telecom world: the company's books, the user's phone, and what passes between them after every call. */
import type { Document } from '../document.ts';
import { TwoSides } from '../document.ts';
import { equals, str, valueError } from '../python/values.ts';
import type { Bill, Customer, Device, Line, Plan, TelecomDb } from './data.ts';
import type { Phone, Surroundings, TelecomUserDb, Vpn } from './user-data.ts';

/** The benchmark's clock stands. */
export const TODAY = '2025-02-25';

export class TelecomWorld {
  readonly sides: TwoSides<TelecomDb, TelecomUserDb>;
  /** What the phone connects to. The original shares one object among all environments, and breaks it for all: here each has its own. */
  readonly vpn: Vpn = { server_address: '192.168.1.1', protocol: 'OpenVPN', server_performance: 'excellent' };
  #bills = 0;

  constructor(books: Document<TelecomDb>, phone: Document<TelecomUserDb>) {
    this.sides = new TwoSides(books, phone);
  }

  get db(): TelecomDb {
    return this.sides.agent('TelecomDB', 'lines');
  }

  get phone(): Phone {
    return this.sides.user('TelecomUserDB', 'device').device;
  }

  get surroundings(): Surroundings {
    return this.sides.user('TelecomUserDB', 'surroundings').surroundings;
  }

  /** Counted, where the original draws one: else no two runs would end in the same state. */
  newBillId(): string {
    this.#bills++;
    return `B${this.#bills.toString(16).padStart(8, '0')}`;
  }

  customer(id: unknown): Customer {
    return this.db.customers.find((c) => equals(c.customer_id, id)) ?? missing(`Customer with ID ${str(id)} not found`);
  }

  line(id: unknown): Line {
    return this.db.lines.find((l) => equals(l.line_id, id)) ?? missing(`Line with ID ${str(id)} not found`);
  }

  lineOfPhone(number: unknown): Line {
    return this.db.lines.find((l) => equals(l.phone_number, number)) ?? missing(`Line with phone number ${str(number)} not found`);
  }

  plan(id: unknown): Plan {
    return this.db.plans.find((p) => equals(p.plan_id, id)) ?? missing(`Plan with ID ${str(id)} not found`);
  }

  device(id: unknown): Device {
    return this.db.devices.find((d) => equals(d.device_id, id)) ?? missing(`Device with ID ${str(id)} not found`);
  }

  bill(id: unknown): Bill {
    return this.db.bills.find((b) => equals(b.bill_id, id)) ?? missing(`Bill with ID ${str(id)} not found`);
  }

  customerOfPhone(number: unknown): Customer {
    for (const customer of this.db.customers) {
      if (equals(customer.phone_number, number)) return customer;
      if (customer.line_ids.some((id) => equals(this.line(id).phone_number, number))) return customer;
    }
    throw valueError(`Customer with phone number ${str(number)} not found`);
  }

  /** A line, where it is the customer's. */
  lineOf(customerId: unknown, lineId: unknown): Line {
    if (!this.customer(customerId).line_ids.some((id) => equals(id, lineId))) {
      throw valueError(`Line ${str(lineId)} not found for customer ${str(customerId)}`);
    }
    return this.line(lineId);
  }

  billsAwaitingPayment(customer: Customer): Bill[] {
    return customer.bill_ids.map((id) => this.bill(id)).filter((bill) => bill.status === 'Awaiting Payment');
  }

  /** What the company's books say of the user's line reaches the phone; a payment reaches the books. */
  sync(): void {
    const here = this.surroundings;
    if (here.phone_number === null) return;
    const line = this.lineOfPhone(here.phone_number);
    here.line_active = line.status === 'Active';
    here.roaming_allowed = Boolean(line.roaming_enabled);
    const plan = this.plan(line.plan_id);
    here.mobile_data_usage_exceeded = line.data_used_gb >= plan.data_limit_gb + line.data_refueling_gb;
    if (here.payment_request?.paid) {
      this.bill(here.payment_request.bill_id).status = 'Paid';
      here.payment_request = null;
    }
    if (here.payment_request !== null) return;
    const [due] = this.billsAwaitingPayment(this.customerOfPhone(here.phone_number));
    if (due) here.payment_request = { bill_id: due.bill_id, amount_due: due.total_due, paid: false };
  }
}

function missing(message: string): never {
  throw valueError(message);
}
