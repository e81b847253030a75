/** Sandboxes for what a policy writes: providers behind one interface, the local one of namespaces and control groups first. */
export {
  checkSandboxProvider,
  closeSharedSandboxes,
  makeSandboxProvider,
  registerSandboxProvider,
  sandboxProviderNames,
  sharedSandboxProvider,
} from './by-name.ts';
export { ControlGroups, type ControlGroupsPlace } from './control-groups.ts';
export { LIMIT_NAMES, type MachineProviderOptions, MachineSandboxProvider } from './provider.ts';
export { seccompProgram } from './seccomp.ts';
export { Slots } from './slots.ts';
export type * from './types.ts';
export { DEFAULT_LIMITS } from './types.ts';
