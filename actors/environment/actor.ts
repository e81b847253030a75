/** The environment host as an actor. Importing it starts nothing; `spawn(EnvironmentActor, { args: [{ environment: 'desk' }] })` does. */
import { defineActor } from '../../runtime/index.ts';
import { EnvironmentHost } from './host.ts';
// The domains register themselves there; a worker that hosts this actor imports nothing else.
import './index.ts';

export const EnvironmentActor = defineActor(import.meta.url, 'EnvironmentActor', EnvironmentHost);
