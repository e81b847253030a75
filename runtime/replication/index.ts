// Copies of a versioned segment on other hosts, which follow it version by version.
export { type ReplicaOptions, type ReplicaStatus, SegmentReplica } from './replica.ts';
export { SegmentSource } from './source.ts';
export type { VersionName } from './update.ts';
