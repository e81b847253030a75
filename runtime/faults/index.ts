// Faults as a feature: plans of what is to go wrong in a run, carried out and reported. The simulation beside it has the control plane alone.
export { FaultInjector } from './injector.ts';
export { type Fault, type FaultInput, type FaultPlan, type FaultPlanInput, parseFaults } from './plan.ts';
export { type FaultReport, faultText, type Injected } from './report.ts';
