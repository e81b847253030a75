// Values that have an owner: refs, and who holds them.
export { defaultStoreBytes, type HostStore, makeHostStore } from './host-store.ts';
export { Loans } from './loans.ts';
export { FAILED, isPlaceOfValue, type Keeper, PENDING, type PendingCall, RELEASED, Ref, VALUE } from './reference.ts';
export { ObjectStore, removeSpilled, type StoredObject, storedAs } from './store.ts';
