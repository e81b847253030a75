// Settings of a whole run on a tiny model, in about a second.

/** An entropy bonus moves the weights in every step, whatever the tiny policy scores. */
export const tiny = {
  seed: 3,
  env: { level: 1, max_turns: 6, num_actors: 2 },
  data: { train_batch_size: 2, val_size: 6, val_interim_size: 4 },
  model: {
    hidden_size: 32,
    intermediate_size: 32,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 8,
    num_local_experts: 2,
    num_experts_per_tok: 1,
    sliding_window: 16,
  },
  rollout: { n: 4, num_actors: 2, threads: 1, max_num_seqs: 8, max_model_len: 160, max_tokens_per_turn: 8 },
  actor: { entropy_coeff: 0.01, kl_loss_coef: 0.01, threads: 2, ppo_mini_batch_size: 1, optim: { lr_warmup_steps: 2 } },
  sft: { total_steps: 10, train_batch_size: 4, demonstrations: 40 },
  trainer: { total_training_steps: 5, test_freq: 2, save_freq: 2, max_ckpt_to_keep: 9, max_trajectories_per_step: null },
};

/** For what does not depend on several actors of a kind: each is a process that takes half a second of a core to begin. */
export const few = { 'env.num_actors': 1, 'rollout.num_actors': 1 };
