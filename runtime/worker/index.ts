// Inside a worker: hosting actors, calling others, owning values.
export { onAbort } from './abort.ts';
export { ActorClient } from './client.ts';
export { type ActorCounts, type CallRecord, type MethodCounts, type Recorder, setRecorder } from './counters.ts';
export { ActorHost } from './host.ts';
export { actorScope, callScope, type Scope, setAlone } from './scope.ts';
export { type AgentLink, collectRefs, enter, hasSession, Session, type SessionBirth, session } from './session.ts';
