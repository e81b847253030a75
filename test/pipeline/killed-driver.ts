// A whole run in a process of its own, so that a test can kill it: `node killed-driver.js <settings>`, JSON; reports each GRPO step to its parent.
import { parseConfig, train } from '../../actors/index.ts';
import { tiny } from './tiny-settings.ts';

if (process.send) {
  const config = parseConfig([
    { source: 'tiny', values: tiny },
    { source: 'child', values: { mode: 'sync', ...JSON.parse(process.argv[2]!) } },
  ]);
  await train(config, { preset: 'tiny', onProgress: (e) => e.kind === 'advance' && e.phase === 'grpo' && process.send!(e.done) });
}
