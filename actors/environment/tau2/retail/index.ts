/** The retail domain: 16 tools of the agent over one database; the user only talks. */
import { calculateTool, transferTool } from '../common-tools.ts';
import type { Domain } from '../domain.ts';
import { validate } from '../python/shape.ts';
import { baseTable, hashTables, patchTables, sameTables, snapshotTables } from '../table.ts';
import { inOrder, Toolkit } from '../toolkit.ts';
import { database, order, product, user } from './data.ts';
import { reads } from './reads.ts';
import { RetailWorld } from './world.ts';
import { writes } from './writes.ts';

const ORDER = [
  'calculate',
  'cancel_pending_order',
  'exchange_delivered_order_items',
  'find_user_id_by_name_zip',
  'find_user_id_by_email',
  'get_order_details',
  'get_product_details',
  'get_item_details',
  'get_user_details',
  'list_all_product_types',
  'modify_pending_order_address',
  'modify_pending_order_items',
  'modify_pending_order_payment',
  'modify_user_address',
  'return_delivered_order_items',
  'transfer_to_human_agents',
];

export const retailTools = new Toolkit<RetailWorld>(
  'RetailTools',
  inOrder(ORDER, [calculateTool<RetailWorld>(), transferTool<RetailWorld>(), ...reads, ...writes]),
);

/** `db`: the content of db.json, read in order. */
export function retail(db: unknown): Domain<RetailWorld> {
  const { products, users, orders } = validate('RetailDB', database, db);
  const base = { products: baseTable(product, products), users: baseTable(user, users), orders: baseTable(order, orders) };
  return {
    name: 'retail',
    agent: retailTools,
    world: (fixes) => new RetailWorld(base, fixes),
    update: (world, _side, data) => patchTables(world.tables, data),
    hashes: (world) => ({ agent: hashTables(world.tables), user: null }),
    same: (a, b) => sameTables(a.tables, b.tables),
    snapshot: (world) => snapshotTables(world.tables),
  };
}
