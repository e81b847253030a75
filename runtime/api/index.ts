// What a user of the runtime types.

export type { Explanation, NodeView } from '../control/index.ts';
export type { OnLines, Questions as ObserverQuestions } from '../observe/client.ts';
export type {
  ActorRow,
  EventInfo,
  GroupInfo,
  Listing,
  ListOptions,
  NodeInfo,
  ObjectInfo,
  Silent,
  StatusInfo,
  SummaryRow,
  TaskInfo,
  WorkerInfo,
} from '../observe/facts.ts';
export type { LogFile, LogTail } from '../observe/logs.ts';
export { chooseRun, type FoundRun, findRuns } from '../observe/runs.ts';
export { buildTimeline, type Timeline, type TimelineData, type TraceEvent } from '../observe/timeline.ts';
export {
  ActorGroup,
  ActorPool,
  type ActorPoolOptions,
  createQueue,
  type GroupCalls,
  type GroupOptions,
  Queue,
  type QueueHandle,
  type QueueOptions,
  type Spread,
  spawnGroup,
  spread,
  type WaitOptions,
} from '../patterns/index.ts';
export {
  describeProgram,
  differences,
  openProgram,
  type Program,
  type ProgramFile,
  type ProgramManifest,
  type ProgramOptions,
  parseManifest,
  storeProgram,
} from '../program/index.ts';
export {
  type CurrentTask,
  currentTask,
  defineTask,
  type TaskCaller,
  type TaskDefinition,
  type TaskFunction,
  type TaskOptions,
  task,
} from '../tasks/index.ts';
export { onAbort } from '../worker/index.ts';
export { cancel, currentActor, getActor, kill, listActors, onActorChange, ready, spawn, withOptions } from './actors.ts';
export { type AgentOptions, type HeadOptions, joinHead, type RunningAgent, type RunningHead, startHead } from './cluster.ts';
export { defineActor } from './definition.ts';
export {
  ActorBusyError,
  ActorDiedError,
  ActorFailedError,
  CallAbortedError,
  CallTimeoutError,
  type Death,
  RemoteError,
  type RuntimeErrorCode,
  RuntimeFailure,
  runtimeErrorCodes,
} from './errors.ts';
export {
  checkFaultPlan,
  type FaultInput,
  type FaultPlan,
  type FaultPlanInput,
  type FaultReport,
  type Faults,
  faultReportText,
  type Injected,
  type InjectOptions,
  injectFaults,
} from './faults.ts';
export { currentHost, HOST_LABEL } from './host-name.ts';
export { type JobInfo, type JobOptions, type JobState, listJobs, readJobLog, stopJob, submitJob } from './jobs.ts';
export {
  listActorLoad,
  listEvents,
  listGroups,
  listObjects,
  listTasks,
  listWorkers,
  logs,
  metrics,
  metricsPort,
  RunObserver,
  runFolder,
  status,
  summary,
  timeline,
} from './observe.ts';
export { drainNode, explain, listNodes, type PlacementGroup, pendingDemand, placementGroup } from './placement.ts';
export { init, shutdown } from './run.ts';
export { type StackSample, stack, stackText } from './stack.ts';
export type {
  ActorClass,
  ActorDefinition,
  ActorHandle,
  ActorInfo,
  ActorOptions,
  ActorOutput,
  AnyHandle,
  BundleOptions,
  CallOptions,
  ChannelOptions,
  CurrentActor,
  HandleOf,
  Health,
  InitOptions,
  Isolation,
  KillOptions,
  ObjectRef,
  ObjectStream,
  PlacementGroupOptions,
  PlacementOptions,
  ResourceOptions,
  SpawnOptions,
} from './types.ts';
export { allocate, get, put, type TypedArrayConstructor, wait } from './values.ts';
