/** tau2-bench: its domains, tools, evaluator and protocol. docs/tau2.md describes it. */

export { callText, parseActionText } from './action-text.ts';
export { type DomainData, tau2Data } from './data.ts';
export { diagnose, type ReferenceFacts, referenceFacts } from './diagnostics.ts';
export type { Domain, DomainName, Side } from './domain.ts';
export { tau2Entries } from './entries.ts';
export { Tau2Environment } from './environment.ts';
export {
  type EvaluateOptions,
  type Evaluation,
  evaluate,
  evaluateUnjudged,
  type Judge,
  TERMINATIONS,
  type Termination,
} from './evaluate.ts';
export * from './generated/index.ts';
export { type GymOptions, type GymStep, Tau2Gym } from './gym.ts';
export { DONE, GREETING, Protocol, type ProtocolOptions, replyOf, STOP, type UserReply } from './protocol.ts';
export { refusesTask, ScriptedUser } from './retail/user/scripted-user.ts';
export { basisText, doNothingRate, doNothingScore, passHatK, referenceOf, referenceScore, referenceTrajectory } from './score.ts';
export { type Answer, Session } from './session.ts';
export { FIXES, type Fix, type Fixes, readFixes } from './settings.ts';
export { basisOf, scenarioText, type Tau2Call, type Tau2Message, type Tau2Task, tau2Call, ticketOf } from './tasks.ts';
