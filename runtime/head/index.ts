// The shell around the control plane.
export { Head, type HeadOptions } from './head.ts';
export { Journal, type Recovered } from './journal.ts';
export { listenForPeers } from './listener.ts';
export { type HeadProcess, startHead } from './process.ts';
export { type HeadRecord, HeadState } from './state.ts';
