// Values that have an owner: refs, and who holds them.
export { Loans } from './loans.ts';
export { FAILED, type Keeper, PENDING, Ref, RELEASED, VALUE } from './reference.ts';
