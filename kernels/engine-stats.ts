/** What an engine has counted since it was made. */
export interface EngineStats {
  /** Generation: steps of the scheduler, token rows in them (prompts too), tokens drawn, requests finished. */
  steps: number;
  rows: number;
  generatedTokens: number;
  finishedRequests: number;
  largestStep: number;
  versionsSeen: number;
  /** Wall time in steps, and the part of it inside the model. */
  stepSeconds: number;
  stepPassSeconds: number;
  forwardPasses: number;
  forwardTokens: number;
  forwardSeconds: number;
  backwardPasses: number;
  backwardTokens: number;
  backwardSeconds: number;
  optimizerSteps: number;
  optimizerSeconds: number;
  /** Tokens that turns asked to be read, those of them that were found in the cache, and how often a sequence lost its pages under way. */
  prefixQueries: number;
  prefixHits: number;
  preemptions: number;
  /** Pages of 64 tokens: all, those that sequences refer to, and those that are only kept for who may go on from them. */
  cachePages: number;
  cachePagesUsed: number;
  cachePagesKept: number;
  cacheBytes: number;
  activationBytes: number;
  /** Training: scratch of the operators at its largest without the logits, the block of logits, and what the first backward and step took. */
  workspaceBytes: number;
  logitsBytes: number;
  gradientBytes: number;
  optimizerBytes: number;
  /** Cache slots in use, and callers that wait for one. */
  openSequences: number;
  waitingSequences: number;
}
