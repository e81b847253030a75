// Jobs: drivers that run on the head's host, whoever submits them and wherever that is.
import type { JobInfo, JobLog, JobRequest } from '../head/jobs.ts';
import { session } from '../worker/index.ts';
import { bad, checkKnown, checkTimeout } from './check.ts';

export type { JobInfo, JobState } from '../head/jobs.ts';

export interface JobOptions {
  /** Folder on the head's host in which it runs; default that in which the head was started. */
  cwd?: string;
  /** On top of the head's environment. `SINKFLEX_ADDRESS` is the cluster's folder, for `init({ address })`. */
  env?: Record<string, string>;
  /** Name of the job; default a new one. */
  job?: string;
}

/**
 * Starts a command on the head's host, and does not wait for it. It ends by itself, with stopJob(), or with the cluster.
 *
 * @example
 * const { job } = await submitJob(['node', 'train.js'], { cwd: '/srv/app' });
 */
export async function submitJob(command: readonly string[], options: JobOptions = {}): Promise<JobInfo> {
  checkKnown('submitJob', options, { cwd: true, env: true, job: true });
  if (!Array.isArray(command) || !command.every((word) => typeof word === 'string')) bad('command', command, 'a list of words');
  const request: JobRequest = { command: [...command], ...options };
  return (await session().ask({ q: 'job-submit', request })) as JobInfo;
}

/** All jobs of the cluster, the oldest first. */
export async function listJobs(): Promise<JobInfo[]> {
  return (await session().ask({ q: 'job-list' })) as JobInfo[];
}

/** SIGTERM to a job and what it has started, SIGKILL after `timeoutMs` (10 s). Answers what became of it. */
export async function stopJob(job: string, options: { timeoutMs?: number } = {}): Promise<JobInfo> {
  const graceMs = checkTimeout('stopJob', options) ?? 10_000;
  return (await session().ask({ q: 'job-stop', job, graceMs })) as JobInfo;
}

/**
 * A piece of what a job has written to its output, from that byte on. Once `state` is one of an end and the piece is empty, that was all.
 *
 * @example
 * for (let from = 0; ; ) {
 *   const { text, next, state } = await readJobLog(job, from);
 *   process.stdout.write(text);
 *   if (text.length === 0 && state !== 'running' && state !== 'starting') break;
 *   from = next;
 * }
 */
export async function readJobLog(job: string, from = 0): Promise<JobLog> {
  if (!Number.isSafeInteger(from) || from < 0) bad('from', from, 'a number of bytes');
  return (await session().ask({ q: 'job-log', job, from })) as JobLog;
}
