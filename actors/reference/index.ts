/** Reference log-probabilities from frozen weights. */
export { Reference, ReferenceActor, type ReferenceOptions } from './reference.ts';
