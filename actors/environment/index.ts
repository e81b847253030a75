/** Environments: the interface, the registry, the host that runs them, and the domains. Importing it registers the domains. */
import { code, codeBytes } from './code/index.ts';
import { dataset } from './dataset/index.ts';
import { desk, deskTokenizer } from './desk/index.ts';
import { register } from './registry.ts';
import { refusesTask, retailGenerated, ScriptedUser, tau2Entries } from './tau2/index.ts';
import { ModelUser, registerUserSimulator } from './user/index.ts';

export { EnvironmentActor } from './actor.ts';
export * from './code/index.ts';
export { type ConformanceOptions, checkEnvironment } from './conformance.ts';
export { EnvironmentHost, type EnvironmentHostOptions, type EnvironmentHostStats, type HostResetOptions } from './host.ts';
export { type LatencyModel, parseLatency } from './latency.ts';
export { CounterRandom, threefry } from './random.ts';
export { chatFormat, entry, environmentNames, make, register } from './registry.ts';
export { isValidationTask, trainingTask, validationTask } from './seeds.ts';
export * as tau2 from './tau2/index.ts';
export * from './tools/index.ts';
export type * from './types.ts';
export * from './user/index.ts';
export { desk, deskTokenizer };

register(code);
register(codeBytes);
register(dataset);
register(desk);
for (const entry of tau2Entries) register(entry);
register(retailGenerated);
registerUserSimulator('llm', (options) => new ModelUser(options));
registerUserSimulator('scripted', (options) => new ScriptedUser(options), { refuses: refusesTask });
