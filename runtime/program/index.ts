// A program and its identity: manifest, and bundles named by content.
export { openProgram, parseManifest, storeProgram } from './bundle.ts';
export { describeProgram, differences, type Program, type ProgramFile, type ProgramManifest, type ProgramOptions } from './manifest.ts';
