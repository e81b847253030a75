/** Errors of settings, run folders and the end of a run: the table of their codes with what to do about each. docs/errors.md lists the same set. */

export const pipelineErrorCodes = {
  SINKFLEX_SETTINGS:
    'Correct the settings that the message lists; docs/configuration.md has them all, and `launch --dry-run` shows what a run would use.',
  SINKFLEX_OUTPUT_EXISTS: 'Choose a new or empty folder with --output, or continue the run that is there with --resume.',
  SINKFLEX_OUTPUT_UNWRITABLE: 'Choose a folder that you may write to with --output.',
  SINKFLEX_DISK_FULL: 'Free some space, or choose another disk with --output; a run that stopped can be continued with --resume.',
  SINKFLEX_RESUME: 'Give the folder of an earlier run (it has a config.yaml), or one of its checkpoints.',
  SINKFLEX_ABORTED: 'The run was stopped from outside (Ctrl-C, or its AbortSignal); --resume continues it.',
} as const;

export type PipelineErrorCode = keyof typeof pipelineErrorCodes;
