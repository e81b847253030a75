// The control plane: pure state machines, and the messages between an agent and its workers. cluster.ts has the whole of a run; actor.ts is
// the life of one actor.
export { type ActorEffect, type ActorEvent, advance, born, type Life, type RestartPolicy, type Status, type Step } from './actor.ts';
export { type Clock, deadline, systemClock } from './clock.ts';
export { Cluster } from './cluster.ts';
export * from './cluster-types.ts';
export { type Demand, type NodeKind, nodesWanted } from './demand.ts';
export type { Died, EndData, FromHead, HeadLink, Hosted, HostInfo, Join, PeerLink, ToHead, ToWorkers } from './head-messages.ts';
export { LIVENESS, Liveness, type LivenessTimes } from './liveness.ts';
export type {
  ActorSpec,
  Ask,
  BirthMessage,
  ChannelBirth,
  DeathData,
  DirectBirth,
  EncodedValue,
  EnvironmentChange,
  Found,
  FromAgent,
  LeaseBirth,
  Place,
  RehearseMessage,
  ResourceRequest,
  Route,
  StopMode,
  StoreBirth,
  TickCell,
  ToAgent,
  WorkerBirth,
} from './messages.ts';
export { nextState, unitOf } from './random.ts';
