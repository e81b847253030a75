// The control plane under simulation.
export { type SimulationOptions, type SimulationResult, World } from './world.ts';
