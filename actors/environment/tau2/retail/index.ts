/** The retail domain: 16 tools of the agent over one database; the user only talks. */
import { calculateTool, transferTool } from '../common-tools.ts';
import type { Domain } from '../domain.ts';
import { validate } from '../python/shape.ts';
import { baseTable, hashTables, patchTables, sameTables, snapshotTables } from '../table.ts';
import { Toolkit } from '../toolkit.ts';
import { database, order, product, user } from './data.ts';
import { reads } from './reads.ts';
import { RetailWorld } from './world.ts';
import { writes } from './writes.ts';

export const retailTools = new Toolkit<RetailWorld>('RetailTools', [
  ...[calculateTool<RetailWorld>(), transferTool<RetailWorld>(), ...reads, ...writes].sort((a, b) => (a.name < b.name ? -1 : 1)),
]);

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
