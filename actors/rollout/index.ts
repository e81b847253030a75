/** Rollouts: the agent loop, and the actor that runs very many episodes at once over one engine. */
export { CompactableContext, type CompactionOptions } from './compaction.ts';
export { type ChosenChat, type DialogueOptions, dialogueOf } from './dialogue.ts';
export {
  type Dialogue,
  type EpisodeContext,
  type EpisodeLimits,
  type EpisodeTask,
  type GenerationEngine,
  playEpisode,
  type RemoteEpisode,
  type Sampling,
} from './episode.ts';
export { isInfrastructureFailure, playWithRetries } from './retry.ts';
export { Rollout, RolloutActor, type RolloutAssignment, type RolloutOptions, type RolloutStatus } from './rollout.ts';
export { ServerEngine, type ServerEngineOptions } from './server-engine.ts';
export { type ServerKind, serverKinds } from './server-protocols.ts';
export { TokenBuffer } from './token-buffer.ts';
export { copyNames, type ReplicatedStore } from './weights.ts';
