// Entry of a worker process that nobody waits for yet. What it loads is compiled whole: functions that are compiled at their first call
// take a quarter of the time from the spawn of a warm actor to its first answer.
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--no-lazy');
const { loaded } = await import('./process-main.ts');
await loaded;
setFlagsFromString('--lazy'); // the actor's own modules are compiled as it asked
