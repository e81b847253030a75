/** Environments: the interface, the registry, the actor that hosts them, and the domains. */
export type * from './types.ts';
