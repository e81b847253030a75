/** The telecom domain: 13 tools of the agent on the company's books, 30 of the user on a phone, and what passes between them. */
import { Document } from '../document.ts';
import type { Domain } from '../domain.ts';
import { validate } from '../python/shape.ts';
import { telecomTools } from './agent-tools.ts';
import { database } from './data.ts';
import { userDatabase } from './user-data.ts';
import { telecomUserTools } from './user-tools.ts';
import { TelecomWorld } from './world.ts';

export function telecom(db: unknown, userDb: unknown): Domain<TelecomWorld> {
  const books = new Document('TelecomDB', database, validate('TelecomDB', database, db));
  const phone = new Document('TelecomUserDB', userDatabase, validate('TelecomUserDB', userDatabase, userDb));
  return {
    name: 'telecom',
    agent: telecomTools,
    user: telecomUserTools,
    world: () => new TelecomWorld(books, phone),
    sync: (world) => world.sync(),
    update: (world, side, data) => world.sides.update(side, data),
    hashes: (world) => world.sides.hashes(),
    same: (a, b) => a.sides.same(b.sides),
    snapshot: (world) => world.sides.snapshot(),
  };
}
