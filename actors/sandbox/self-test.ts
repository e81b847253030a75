/** Which limits of a sandbox are in force: each is read back, from inside by a trusted program and from outside from the kernel. */
import { readFileSync, readlinkSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ControlGroup } from './control-groups.ts';
import { insideFolder } from './launch.ts';
import { isForeignKernel } from './runsc.ts';
import { FIRST_UID } from './slots.ts';
import type { ExecRequest, ExecResult, LimitReport, SandboxInfo, SandboxLimits } from './types.ts';

/** What probe.py prints. */
interface Seen {
  uid: number;
  capabilities: string[];
  noNewPrivs: string;
  seccomp: string;
  vsock: number;
  unshare: number;
  ptrace: number;
  prlimit: number;
  namespaces: Record<string, string>;
  interfaces: string[];
  writable: string[];
  visible: string[];
  sizes: Record<string, number>;
  nproc: number;
  nofile: number;
  core: number;
  addressSpace: number;
  environment: string[];
  supervisor: string[];
  openable: string[];
  kernel: string;
}

const EPERM = 1;
const EAFNOSUPPORT = 97;
const PAGE = 4096;
/** Place of CapBnd among the sets. */
const BOUNDING = 3;

export interface Examined {
  exec(request: ExecRequest): Promise<ExecResult>;
  limits: SandboxLimits;
  group: ControlGroup;
  /** What is in the group and process 1 inside, as numbered outside; undefined where it cannot be told. */
  supervisor: number | undefined;
  environment: readonly string[];
  isolation: SandboxInfo['isolation'];
  /** What the control group was given. */
  groupLimits: SandboxLimits;
}

export async function examine(e: Examined): Promise<LimitReport[]> {
  const hidden = [
    '/root',
    '/home',
    '/var',
    '/srv',
    '/boot',
    '/run',
    '/sys',
    '/etc/shadow',
    '/etc/hostname',
    homedir(),
    process.cwd(),
    join(tmpdir(), 'sinkflex'),
  ];
  const result = await e.exec({
    language: 'python',
    code: readFileSync(join(insideFolder(), 'probe.py'), 'utf8'),
    // The root folder and what a sandbox has of its own are not hidden.
    stdin: JSON.stringify({ hidden: hidden.filter((path) => !['/', '/tmp', '/episode', '/tmp/sinkflex'].includes(path)) }),
  });
  let seen: Seen;
  try {
    seen = JSON.parse(result.stdout) as Seen;
  } catch {
    return [{ limit: 'probe', enforced: false, found: `${result.status} ${result.code ?? result.signal}: ${result.stderr.slice(-300)}` }];
  }
  const endless = await e.exec({
    language: 'python',
    code: 'import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: pass',
    timeoutMs: 30,
  });
  return [...fromInside(seen, e), ...fromOutside(seen, e), limit('deadline', endless.status === 'timeout', endless.status)];
}

function fromInside(s: Seen, e: Examined): LimitReport[] {
  const gvisor = e.isolation === 'gvisor';
  // gVisor's kernel enforces no_new_privs from outside and does not print it; its bounding set lists what its root may.
  const sets = s.capabilities.filter((_, i) => !gvisor || i !== BOUNDING);
  const caps = sets.every((set) => /^0+$|^\?$/.test(set)) && (gvisor || s.noNewPrivs === '1');
  const filtered = s.seccomp === '2' && s.unshare === EPERM && s.ptrace === EPERM && s.prlimit === EPERM;
  const foreign = Object.entries(s.namespaces).filter(([name, inode]) => inode === ownNamespace(name));
  const tooLarge = Object.entries(s.sizes).filter(([path, bytes]) => bytes > (path === '/dev/shm' ? 2 ** 20 : e.limits.diskBytes) + PAGE);
  // gVisor's /sys is its own.
  const visible = s.visible.filter((path) => !(gvisor && path === '/sys'));
  // gVisor shows these to everybody; they hold what every program has too. Its memory and its descriptors are what counts.
  const shown = gvisor ? ['/proc/1/environ', '/proc/1/maps', '/proc/1/fd'] : [];
  const reached = [...s.supervisor.filter((path) => !shown.includes(path)), ...s.openable];
  const extra = s.environment.filter((name) => !e.environment.includes(name) && !['PWD', 'LC_CTYPE'].includes(name));
  return [
    limit('capabilities', caps, `sets ${s.capabilities.join(' ')}, no_new_privs ${s.noNewPrivs}`),
    limit(
      'syscalls',
      s.vsock === EAFNOSUPPORT && (gvisor ? isForeignKernel(s.kernel) : filtered),
      `kernel ${s.kernel}; seccomp ${s.seccomp}; errno of AF_VSOCK ${s.vsock}, unshare ${s.unshare}, ptrace ${s.ptrace}, prlimit of process 1 ${s.prlimit}`,
    ),
    limit('namespaces', foreign.length === 0, foreign.length === 0 ? 'all its own' : `shared: ${foreign.map(([name]) => name).join(', ')}`),
    limit('network', s.interfaces.join() === 'lo', `interfaces ${s.interfaces.join(', ')}`),
    limit(
      'read-only',
      s.writable.length === 0,
      s.writable.length === 0 ? 'nothing but /episode, /tmp and /dev/shm' : `writable: ${s.writable.join(', ')}`,
    ),
    limit('files', visible.length === 0, visible.length === 0 ? 'nothing of the host but /usr' : `visible: ${visible.join(', ')}`),
    limit('disk', tooLarge.length === 0, JSON.stringify(s.sizes)),
    limit('descriptors', s.nofile === e.limits.openFiles && s.core === 0, `open files ${s.nofile}, core ${s.core}`),
    limit('environment', extra.length === 0, extra.length === 0 ? 'its own' : `also ${extra.join(', ')}`),
    limit('supervisor', reached.length === 0, reached.length === 0 ? 'out of reach' : `within reach: ${reached.join(', ')}`),
  ];
}

function fromOutside(s: Seen, e: Examined): LimitReport[] {
  const inForce = e.group.limits();
  // gVisor's processes do not show outside; that something is in the group does.
  const inside = e.supervisor !== undefined || (e.isolation === 'gvisor' && e.group.pids().length > 0);
  const uid = e.supervisor === undefined ? undefined : uidOf(e.supervisor);
  const root = process.getuid?.() === 0 && e.isolation === 'namespaces';
  const user = root ? uid !== undefined && uid >= FIRST_UID : s.uid !== 0;
  const within = (found: number | undefined, most: number): boolean => inside && found !== undefined && found <= most;
  const told = (found: number | undefined) =>
    found === undefined ? 'none' : `${found}${inside ? '' : ', but the sandbox is not in the group'}`;
  return [
    limit('user', user, root ? `user id ${uid ?? 'unknown'}` : `user id ${s.uid} inside`),
    limit('memory', within(inForce.memory, e.groupLimits.memoryBytes), told(inForce.memory)),
    limit(
      'processes',
      within(inForce.processes, e.groupLimits.processes) || (s.nproc >= 0 && s.nproc <= e.limits.processes),
      `control group ${told(inForce.processes)}, resource limit ${s.nproc}`,
    ),
    limit('cpu', within(inForce.cpus, e.limits.cpus + 1e-9), told(inForce.cpus)),
  ];
}

function ownNamespace(name: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/ns/${name}`);
  } catch {
    return undefined;
  }
}

function uidOf(pid: number): number | undefined {
  try {
    return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return undefined;
  }
}

const limit = (name: string, enforced: boolean, found: string): LimitReport => ({ limit: name, enforced, found });
