// Process primitives without policy: dying with one's parent, leaving the terminal's group, and telling the living from the dead.
import { callNative } from './errors.ts';
import { addon } from './native.ts';

export interface ProcessStatus {
  /** As in /proc/<pid>/stat: R running, S or D asleep, T stopped, t traced, Z zombie, X dead. */
  state: string;
  /** Pid of the parent. */
  parent: number;
  threads: number;
  /** Identifies the incarnation of a pid; only for comparing. */
  startTime: string;
}

interface NativeOs {
  dieWithParent(expectedParentPid: number): void;
  leaveProcessGroup(): void;
  processStatus(pid: number): ProcessStatus | undefined;
  provenDead(pid: number, startTime: string): boolean;
  peerCredentials(fd: number): { pid: number; uid: number; gid: number };
  availableMemory(): number;
}
const native = addon.os as NativeOs;

function processStatus(pid: number): ProcessStatus | undefined {
  return callNative(() => native.processStatus(pid));
}

export const os = {
  /**
   * The kernel kills this process (SIGKILL) as soon as its parent dies, however busy either is. Main thread only. On Linux it comes
   * when the parent's forking thread ends: fork workers from a main thread. SINKFLEX_OS_PARENT_GONE when `expectedParentPid` (which
   * the parent passed on) is no longer the parent: exit then.
   */
  dieWithParent(expectedParentPid: number): void {
    callNative(() => native.dieWithParent(expectedParentPid));
  },

  /** A session of its own: Ctrl-C, Ctrl-Z and hang-ups of the terminal no longer reach this process, only its agent. */
  leaveProcessGroup(): void {
    callNative(() => native.leaveProcessGroup());
  },

  /** undefined: no such process. Zombies are there, with state 'Z'. */
  processStatus,

  /** What tells this incarnation of a pid from the next; undefined: no such process. */
  processStartTime(pid: number): string | undefined {
    return processStatus(pid)?.startTime;
  },

  /** State letter of a process, 'Z' for a zombie; undefined: no such process. */
  processState(pid: number): string | undefined {
    return processStatus(pid)?.state;
  },

  /** That incarnation of a pid is there, and has not ended. */
  processRuns(pid: number, startTime: string): boolean {
    const status = processStatus(pid);
    return status?.startTime === startTime && !['Z', 'X'].includes(status.state);
  },

  /** True only if nothing of that incarnation can run any more: gone, another start time, or a zombie without threads. */
  provenDead(pid: number, startTime: string): boolean {
    return callNative(() => native.provenDead(pid, startTime));
  },

  /** Who is at the other end of a connected UNIX socket. */
  peerCredentials(fd: number): { pid: number; uid: number; gid: number } {
    return callNative(() => native.peerCredentials(fd));
  },

  /** Bytes that can be taken without swapping or being killed: of the machine, or of the memory control groups if less. */
  availableMemory(): number {
    return callNative(() => native.availableMemory());
  },
};
