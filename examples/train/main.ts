// Training from a program: what `npm run launch` does, with settings of one's own.
//   npm run build && node dist/examples/train/main.js
import { train } from 'sinkflex';

const result = await train({
  preset: 'tiny', // 'desk', the default, is the job of `npm run launch`; 'tiny' runs all its parts in seconds
  seed: 7,
  rollout: { n: 8 },
  'trainer.total_training_steps': 6,
  onProgress: (event) => event.kind === 'end' && console.log(event.phase, event.seconds.toFixed(1), 's'),
});
console.log(result.before?.mean, '->', result.after.mean, result.folder);
