// The shell around the control plane.
export { Head } from './head.ts';
