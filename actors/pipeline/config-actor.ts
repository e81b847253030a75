// Settings of the policy's updates: loss, batches, optimiser.
import { z } from 'zod';
import { count, devices, fraction, key, learningRate, positive, section } from './config-key.ts';

export const actorSettings = section({
  optim: section({
    lr: key(learningRate(), 3e-4, '', 'learning rate after warm-up'),
    lr_warmup_steps: key(z.int().min(0), 10, 'steps', 'linear warm-up'),
    lr_scheduler_type: key(z.enum(['constant', 'linear', 'cosine']), 'constant', '', 'course of the learning rate after warm-up'),
    min_lr_ratio: key(fraction(), 0.1, '', 'learning rate at the last step, as a share of lr (linear and cosine)'),
    weight_decay: key(z.number().min(0), 0, '', 'decoupled weight decay of AdamW'),
    betas: key(z.tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)]), [0.9, 0.999], '', 'AdamW moments'),
    eps: key(positive(), 1e-8, '', 'AdamW epsilon'),
    optimizer: key(
      z.enum(['adamw', 'adamw_8bit']),
      'adamw',
      '',
      'adamw keeps its moments in float32 (8 bytes a parameter), adamw_8bit in 8-bit codes with a scale a block of 256 (2 bytes)',
    ),
    state_in_slots: key(
      z.boolean(),
      false,
      '',
      'keep the moments in the weight slots: a trainer that is lost takes the step under way again instead of going back to a checkpoint; 8 or 2 bytes a parameter in each of 3 slots',
    ),
  }),
  router_replay: section({
    mode: key(
      z.enum(['disabled', 'R3']),
      'disabled',
      '',
      'R3: training sends each token to the experts that the rollout chose for it (models with experts only); disabled: the router chooses anew',
    ),
  }),
  grad_clip: key(positive(), 1, '', 'largest global gradient norm'),
  ppo_epochs: key(count(), 1, 'passes', 'passes over a batch'),
  ppo_mini_batch_size: key(count().nullable(), null, 'prompts', 'prompts of one optimiser step; null takes the whole batch'),
  ppo_micro_batch_size_tokens: key(
    z.int().min(16),
    8192,
    'tokens',
    'tokens of one forward and backward pass; changes memory, never results',
  ),
  use_dynamic_bsz: key(
    z.boolean(),
    true,
    '',
    'cut passes by tokens (ppo_micro_batch_size_tokens, also named ppo_max_token_len); false cuts them by sequences where ppo_micro_batch_size is set',
  ),
  ppo_micro_batch_size: key(
    count().nullable(),
    null,
    'sequences',
    'sequences of one pass where use_dynamic_bsz is false; changes memory, never results',
  ),
  clip_ratio: key(positive(), 0.2, '', 'clip range of the importance ratio where clip_ratio_low or clip_ratio_high is null'),
  clip_ratio_low: key(positive().nullable(), null, '', 'lower clip range; null takes clip_ratio'),
  clip_ratio_high: key(positive().nullable(), null, '', 'upper clip range; null takes clip_ratio'),
  clip_ratio_c: key(z.number().gt(1).nullable(), 3, '', 'dual clip for negative advantages; null switches it off'),
  loss_agg_mode: key(
    z.enum(['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum', 'seq-mean-token-sum-norm', 'prompt-mean']),
    'token-mean',
    '',
    'how token losses become one number',
  ),
  policy_loss: section({
    loss_mode: key(
      z.string(),
      'vanilla',
      '',
      'policy loss: vanilla (PPO clip), gspo (sequence ratio), cispo, or one that env.module registers (registerPolicyLoss)',
    ),
  }),
  use_kl_loss: key(z.boolean(), true, '', 'add the KL to the reference to the loss; false starts no reference actor'),
  kl_loss_coef: key(z.number().min(0), 0.001, '', 'weight of the KL'),
  kl_loss_type: key(
    z.enum(['k2', 'k3', 'low_var_kl']),
    'k3',
    '',
    'estimator of the KL (low_var_kl = k3); k1 has no useful gradient as a loss and is refused',
  ),
  entropy_coeff: key(z.number(), 0, '', 'weight of the entropy bonus'),
  router_aux_loss_coef: key(
    z.number().min(0),
    0,
    '',
    "weight of the router's load-balancing loss (experts x sum f P, as transformers has it) of each pass, passes weighted by their tokens, also in the warm start; needs a model with experts",
  ),
  num_actors: key(
    count(),
    1,
    'actors',
    'data-parallel trainers: each passes its part of a step, gradients are added up over shared memory, the moments are divided (ZeRO-1); bits depend on their number, not on the run',
  ),
  threads: key(count().nullable(), null, 'threads', 'engine threads of the trainer; null fits the machine'),
  device: devices('what the trainer computes on'),
});
