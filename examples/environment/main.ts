// Checks an environment of one's own and trains on it, from random weights, with no demonstrations.
//   npm run build && node dist/examples/environment/main.js [GRPO steps]
import { train } from 'sinkflex';
import { checkEnvironment, entry } from 'sinkflex/actors';
import './colours.ts';

console.log('problems:', await checkEnvironment(entry('colours')));

const result = await train({
  preset: 'tiny',
  mode: 'sync', // the same numbers each time
  // Rollout and environment actors are processes: each imports the module that registers the environment.
  env: { module: import.meta.resolve('./colours.js'), name: 'colours', max_turns: 3 },
  data: { train_batch_size: 8, val_size: 64 },
  rollout: { n: 8, max_tokens_per_turn: 2, max_model_len: 32 },
  sft: { total_steps: 0 }, // it has no expert to imitate
  actor: { optim: { lr: 3e-3 }, use_kl_loss: false },
  trainer: { total_training_steps: Number(process.argv[2] ?? 40), test_freq: 0, save_freq: 0 },
});
console.log(`${result.steps} steps: ${result.before?.mean.toFixed(2)} -> ${result.after.mean.toFixed(2)}, ${result.folder}`);
