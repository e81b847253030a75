// Values that have an owner: refs, and who holds them.
export { Loans } from './loans.ts';
export { FAILED, type Keeper, PENDING, type PendingCall, RELEASED, Ref, VALUE } from './reference.ts';
