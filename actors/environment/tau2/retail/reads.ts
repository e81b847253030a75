/** Retail tools that look something up. */
import { z } from 'zod';
import { dumps } from '../python/json.ts';
import { compareStrings, equals, lookUp, lower, valueError } from '../python/values.ts';
import type { BaseTable } from '../table.ts';
import { type Tau2Tool, tau2Tool } from '../toolkit.ts';
import { type User, variant } from './data.ts';
import type { RetailWorld } from './world.ts';

const parameter = {
  user: z.string().describe("such as 'sara_doe_496'"),
  order: z.string().describe("such as '#W0000000', with the '#'"),
};

/** Names and addresses of mail never change: found once for all environments. */
const indexes = new WeakMap<BaseTable<User>, { byMail: Map<string, string>; byFirstName: Map<string, string[]> }>();

function indexOf(base: BaseTable<User>) {
  let index = indexes.get(base);
  if (!index) {
    index = { byMail: new Map(), byFirstName: new Map() };
    for (const [id, user] of base.records) {
      const mail = user.email.toLowerCase();
      if (!index.byMail.has(mail)) index.byMail.set(mail, id);
      const name = user.name.first_name.toLowerCase();
      const namesakes = index.byFirstName.get(name);
      if (namesakes) namesakes.push(id);
      else index.byFirstName.set(name, [id]);
    }
    indexes.set(base, index);
  }
  return index;
}

export const reads: Tau2Tool<RetailWorld>[] = [
  tau2Tool({
    name: 'find_user_id_by_name_zip',
    kind: 'read',
    description:
      'The id of a user by name and zip code, or an error. Ask for the email first; use this where the email finds nobody or is not remembered.',
    parameters: z.object({
      first_name: z.string().describe("such as 'John'"),
      last_name: z.string().describe("such as 'Doe'"),
      zip: z.string().describe("such as '12345'"),
    }),
    run(world: RetailWorld, { first_name, last_name, zip }) {
      for (const id of indexOf(world.tables.users.base).byFirstName.get(lower(first_name)) ?? []) {
        const user = world.user(id);
        if (user.name.last_name.toLowerCase() === lower(last_name) && equals(user.address.zip, zip)) return id;
      }
      throw valueError('User not found');
    },
  }),
  tau2Tool({
    name: 'find_user_id_by_email',
    kind: 'read',
    description: 'The id of a user by email, or an error.',
    parameters: z.object({ email: z.string().describe("such as 'something@example.com'") }),
    run(world: RetailWorld, { email }) {
      const id = indexOf(world.tables.users.base).byMail.get(lower(email));
      if (id === undefined) throw valueError('User not found');
      return id;
    },
  }),
  tau2Tool({
    name: 'get_user_details',
    kind: 'read',
    description: 'A user with address, payment methods and orders.',
    parameters: z.object({ user_id: parameter.user }),
    run: (world: RetailWorld, { user_id }) => world.tables.users.show(world.user(user_id).user_id),
  }),
  tau2Tool({
    name: 'get_order_details',
    kind: 'read',
    description: 'An order with its status, items and payments.',
    parameters: z.object({ order_id: parameter.order }),
    run: (world: RetailWorld, { order_id }) => world.tables.orders.show(world.order(order_id).order_id),
  }),
  tau2Tool({
    name: 'get_product_details',
    kind: 'read',
    description: 'A product with all its variants: options, price, availability.',
    parameters: z.object({ product_id: z.string().describe("such as '6086499569'; not the id of an item") }),
    run: (world: RetailWorld, { product_id }) => world.tables.products.show(world.product(product_id).product_id),
  }),
  tau2Tool({
    name: 'get_item_details',
    kind: 'read',
    description: 'One variant of a product: options, price, availability.',
    parameters: z.object({ item_id: z.string().describe("such as '6086499569'; not the id of a product") }),
    run(world: RetailWorld, { item_id }) {
      for (const [, product] of world.tables.products.entries()) {
        const found = lookUp(product.variants, item_id);
        if (found) return variant.write(found, false);
      }
      throw valueError('Item not found');
    },
  }),
  tau2Tool({
    name: 'list_all_product_types',
    kind: 'read',
    description: 'The names and ids of all 50 kinds of products, by name.',
    parameters: z.object({}),
    run(world: RetailWorld) {
      const ids = new Map<string, string>();
      for (const [, product] of world.tables.products.entries()) ids.set(product.name, product.product_id);
      return dumps(new Map([...ids].sort((a, b) => compareStrings(a[0], b[0]))));
    },
  }),
];
