/** Errors of the RL floor: one class, and the table of its codes with what to do about each. docs/errors.md lists the same set. */
import { SinkflexError } from '../kernels/index.ts';

export { didYouMean } from '../kernels/index.ts';

export const actorsErrorCodes = {
  SINKFLEX_CLUSTER_UNFIT: 'The cluster cannot carry the run as it is: the message says what is missing.',
  SINKFLEX_ENVIRONMENT_UNKNOWN: 'Name a registered environment, or register yours before its name is used.',
  SINKFLEX_ENVIRONMENT_TAKEN: 'Register the environment under another name.',
  SINKFLEX_ENVIRONMENT_MODULE:
    'Set env.module to a module that can be imported: its path relative to the settings file or the working directory, or an installed package.',
  SINKFLEX_ENVIRONMENT_OPTION: 'Correct the option that the message names.',
  SINKFLEX_ENVIRONMENT_CHAT:
    'Start from a model folder with a tokenizer and a chat template (model.path), or give the environment a chat format.',
  SINKFLEX_ENVIRONMENT_LOST:
    'The actor does not know this episode (it restarted, or the episode was closed): reset it, or redo the episode.',
  SINKFLEX_ENVIRONMENT_FAILED:
    'The environment itself threw; the episode says nothing about the policy: redo it or leave it out, and fix the cause.',
  SINKFLEX_ENDPOINT_FAILED: 'Check the URL, the name of the model and the key of the endpoint; the message says what the last try met.',
  SINKFLEX_USER_FAILED:
    'The endpoint of the simulated user gave no usable answer, which says nothing about the policy: the episode is redone. Check the endpoint.',
  SINKFLEX_SANDBOX_MISSING:
    'Install the package that the message names, or choose another provider; unsafe-subprocess is for trusted teaching code alone.',
  SINKFLEX_SANDBOX_UNSAFE:
    'Nothing untrusted was run. Put the limit that the message names in force (docs/sandbox.md says what each needs), or choose another provider.',
  SINKFLEX_SANDBOX_LOST: 'The machinery of a sandbox failed, which says nothing about the policy: the episode is redone.',
  SINKFLEX_SANDBOX_OPTION: 'Correct the option of the sandbox that the message names.',
  SINKFLEX_TAU2_DATA: 'Fetch the benchmark (sinkflex data tau2), or name the folder that has it (--tau2-data, or the option data).',
  SINKFLEX_LATENCY_SYNTAX: 'Write none, fixed(50ms), uniform(10ms, 90ms) or lognormal(mean=200ms, sigma=1.0).',
  SINKFLEX_TOKENIZER: 'Check tokenizer.json and tokenizer_config.json: the message says what is missing or unreadable.',
  SINKFLEX_CHAT_TEMPLATE: 'Check the chat template: the message says which conversation it could not render.',
  SINKFLEX_HUB_UNREACHABLE:
    'Check the network, HF_ENDPOINT and the proxy, and try again (a download goes on where it was), or give a folder; offline, download it before.',
  SINKFLEX_HUB_REFUSED: "Set HF_TOKEN to a token that may read the model, and accept the model's terms on its page.",
  SINKFLEX_HUB_MISSING: 'Check the name (org/name, or org/name@revision): the message says what is not there.',
  SINKFLEX_HUB_CORRUPT: 'Try again: what had come was damaged and is gone from the cache.',
  SINKFLEX_HUB_SPACE: 'Free space on the disk, or set HF_HOME to a place that has some.',
  SINKFLEX_CONVERSATION: 'Call start once, then produced and observe in turn.',
  SINKFLEX_TRAJECTORY_EVIDENCE: 'Give every produced token its log-probability and version, as the engine returned them.',
  SINKFLEX_TRAJECTORY_STORE: 'Free space on the disk, choose another output folder, or start the store that the message names.',
  SINKFLEX_ARCHIVE:
    'Check the place (s3://bucket/prefix), AWS_ENDPOINT_URL, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY); the message says what the last try met. Nothing is lost here: the copy goes on where it was.',
  SINKFLEX_REPLAY:
    'Replay a run that stored every trajectory (trainer.max_trajectories_per_step=null) and still has the checkpoint to begin with.',
  SINKFLEX_TRAJECTORY_TWICE: 'A defect of the dataflow: report it with ledger.json.',
  SINKFLEX_QUEUE_CAPACITY: 'Raise rollout.max_num_seqs, or lower rollout.n.',
  SINKFLEX_LEDGER_DUPLICATE: 'A defect of the dataflow: report it with ledger.json.',
  SINKFLEX_LEDGER_UNKNOWN: 'A defect of the dataflow: report it with ledger.json.',
  SINKFLEX_LEDGER_UNBALANCED: 'A defect of the dataflow: report it with ledger.json.',
  SINKFLEX_REWARD_INVALID: 'Make the reward function return finite numbers: NaN and infinite rewards are never trained.',
  SINKFLEX_REWARD_OPTION: 'Correct the setting of the reward that the message names.',
  SINKFLEX_REWARD_FAILED: 'A reward component gave no value in time or at all, which says nothing about the policy: the episode is redone.',
  SINKFLEX_REWARD_BUDGET: 'Raise the budget of the judge, or ask it less often (a gate before it, a smaller batch); then --resume.',
  SINKFLEX_LOSS_OPTION: 'Correct the option of the loss that the message names.',
  SINKFLEX_RECIPE_UNKNOWN: 'Use a name that is registered, or register yours (registerAdvantageEstimator, registerPolicyLoss).',
  SINKFLEX_CHECKPOINT_INVALID: 'Give a checkpoint folder such as <run>/checkpoints/step-0000000010, or a run folder that has one.',
  SINKFLEX_CHECKPOINT_DAMAGED:
    'Give the run folder instead: it goes on from its newest whole checkpoint. Damage that comes again is the disk: check it.',
  SINKFLEX_MODEL_MISMATCH:
    "Take a model that was made for this environment and leave the model's shape as it was; a new run (no --resume, no model.path) makes its own.",
  SINKFLEX_TRAINER_LOST: 'Call begin (a fresh start) or restore (a checkpoint) before anything else of a restarted trainer.',
  SINKFLEX_ROLLOUT_SERVER:
    'Look at the server that the message names: it must be of the kind that rollout.name says, see the folder of the weights, and allow their update.',
  SINKFLEX_ROLLOUT_ABANDONED: 'The run went back to a checkpoint or ended; the episodes are sampled anew where they are still needed.',
  SINKFLEX_TASK_FILE: 'Correct the line of the task file that the message names.',
  SINKFLEX_SAMPLER: 'Name one of the samplers that the message lists, and give it what it needs.',
  SINKFLEX_EXAMPLE: 'Correct the line of the file that the message names.',
  SINKFLEX_REQUEST_INVALID: 'Correct the field of the request that the message names.',
  SINKFLEX_SERVER_BUSY: 'Every sequence is taken, or the server is shutting down: try again, or serve with more --max-num-seqs.',
  SINKFLEX_ABORTED: 'The run was stopped: --resume with its run folder goes on from the last checkpoint.',
} as const;

export type ActorsErrorCode = keyof typeof actorsErrorCodes;

/** A failure of this floor. `details` are plain data and survive a worker boundary. */
export class ActorsError extends SinkflexError {
  constructor(code: ActorsErrorCode, message: string, options: { details?: Record<string, unknown>; cause?: unknown } = {}) {
    super(code, message, options);
    this.name = 'ActorsError';
  }
}
