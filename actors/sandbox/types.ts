/** What a sandbox is to those who use it, whoever provides it. Plain data; nothing here starts anything. */

export type SandboxLanguage = 'python' | 'javascript' | 'shell';

export interface SandboxLimits {
  /** Memory of everything in the sandbox together, its files in /episode and /tmp included. */
  memoryBytes: number;
  /** Processes and threads at once. */
  processes: number;
  /** Cores' worth of time. */
  cpus: number;
  /** Size of /episode and of /tmp, each. */
  diskBytes: number;
  /** Descriptors of one process. */
  openFiles: number;
}

export const DEFAULT_LIMITS: Readonly<SandboxLimits> = {
  memoryBytes: 256 * 2 ** 20,
  processes: 64,
  cpus: 1,
  diskBytes: 32 * 2 ** 20,
  openFiles: 128,
};

export interface SandboxOptions {
  /** Destroyed when it has stood for so long, whatever it does; an hour by default. */
  ttlMs?: number;
  /** For `list`: run, owner, episode. */
  labels?: Record<string, string>;
}

export interface ExecRequest {
  language: SandboxLanguage;
  code: string;
  /** Nothing by default: reading meets the end at once. */
  stdin?: string;
  /** 10 seconds by default. */
  timeoutMs?: number;
  /** Kept of each stream, from its end; 64 KiB by default. */
  maxOutputBytes?: number;
}

/**
 * How a program ended. Everything here is the program's own doing, in a sandbox that was healthy; what is not is thrown.
 * - `exit`: of its own, or by a signal of its own.
 * - `timeout`: still running at its deadline, and killed.
 * - `output_limit`: it wrote more than a program may, and was killed.
 * - `oom`: it wanted more memory than there is, and was killed.
 * - `agent_killed`: it brought the whole sandbox down (by exhausting its memory); the sandbox is gone.
 */
export type ExecStatus = 'exit' | 'timeout' | 'output_limit' | 'oom' | 'agent_killed';

export interface ExecResult {
  status: ExecStatus;
  /** Exit code; null where a signal ended it. */
  code: number | null;
  signal: number | null;
  stdout: string;
  stderr: string;
  /** Something of a stream was left out. */
  truncated: boolean;
  wallMs: number;
  cpuMs: number;
}

/** One sandbox: for one episode, never used for another. Calls run one after the other. */
export interface Sandbox {
  readonly id: string;
  readonly info: SandboxInfo;
  /** Rejects with SINKFLEX_SANDBOX_LOST where the machinery failed, and never for what the program did. */
  exec(request: ExecRequest): Promise<ExecResult>;
  /** Path relative to /episode; folders are made. */
  writeFile(path: string, data: string | Uint8Array): Promise<void>;
  /** At most `maxBytes` (1 MiB by default); a regular file of /episode, never through a link. undefined: there is none. */
  readFile(path: string, maxBytes?: number): Promise<Buffer | undefined>;
  /** Ends everything in it; again is legal. */
  close(): Promise<void>;
}

export interface SandboxInfo {
  id: string;
  provider: string;
  /** What stands between the program and the machine. */
  isolation: 'namespaces' | 'gvisor' | 'none';
  /** Unix time in milliseconds. */
  createdAt: number;
  labels: Record<string, string>;
  /** What self-test found, by the name of the limit. */
  enforced: readonly string[];
}

export interface LimitReport {
  /** Stable name: `network`, `memory`, `processes`, ... */
  limit: string;
  enforced: boolean;
  /** What was read back. */
  found: string;
}

export interface SelfTestReport {
  provider: string;
  /** Every limit is in force, or was waived by name. */
  ok: boolean;
  limits: LimitReport[];
  /** Limits that are not in force and were not waived. */
  missing: string[];
}

export interface SandboxStats {
  open: number;
  /** Started and waiting in the warm pool. */
  warm: number;
  created: number;
  /** Handed out from the pool. */
  hits: number;
  misses: number;
  /** hits / created; 0 before the first. */
  hitRate: number;
  /** Infrastructure failures. */
  lost: number;
}

export interface SandboxProvider {
  readonly name: string;
  /** Runs the self-test first (once): SINKFLEX_SANDBOX_UNSAFE before anything untrusted runs, SINKFLEX_SANDBOX_MISSING without its programs. */
  create(options?: SandboxOptions): Promise<Sandbox>;
  list(): SandboxInfo[];
  /** True where there was one. */
  destroy(id: string): Promise<boolean>;
  selfTest(): Promise<SelfTestReport>;
  stats(): SandboxStats;
  /** Destroys every sandbox of this provider. */
  close(): Promise<void>;
}
