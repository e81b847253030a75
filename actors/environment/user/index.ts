/** Simulated users: the interface, and who is registered. */
export { ModelUser } from './model-user.ts';
export { makeUser, registerUserSimulator, SOLO, userKinds, userRefuses } from './registry.ts';
export type * from './types.ts';
