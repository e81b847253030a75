/**
 * The system-call filter, as a classic BPF program that the kernel checks before every call (seccomp(2)). What is not needed to compute is
 * refused; calls that are newer than this table do not exist for the program; an architecture without a table has no filter at all, and the
 * self-test then refuses to run anything.
 */

const LD = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JEQ = 0x15;
const JGT = 0x25;
const JGE = 0x35;
const JSET = 0x45;
const RET = 0x06;

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const errno = (n: number): number => 0x00050000 | n;
const EPERM = errno(1);
const ENOSYS = errno(38);
const EAFNOSUPPORT = errno(97);

// Offsets in struct seccomp_data; the low half of an argument comes first on the little-endian machines that there are tables for.
const NR = 0;
const ARCH = 4;
const argument = (i: number): number => 16 + 8 * i;

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const CLONE_NEW = 0x7e020000;
/** Unix, IPv4, IPv6: what is confined to the network namespace. AF_VSOCK (40) is not, and reaches the host of a virtual machine. */
const FAMILIES = [1, 2, 10];
const PRIO_PROCESS = 0;
const TERMINAL_IOCTLS = [0x5412, 0x541c]; // TIOCSTI, TIOCLINUX

interface Architecture {
  audit: number;
  /** Greatest call of the table that the filter was written for. */
  greatest: number;
  /** Calls of the x32 personality have this bit. */
  foreignBit?: number;
  clone: number;
  clone3: number;
  socket: number;
  socketpair: number;
  ioctl: number;
  /** Takes a kind and a process: for the caller alone. */
  setpriority: number;
  /** Take a process first: for the caller alone (0), since the supervisor has the user that its programs have. */
  ofOneself: Readonly<Record<string, number>>;
  /** Refused with EPERM, by name for those who read. */
  refused: Readonly<Record<string, number>>;
  /** Refused with ENOSYS, so that libraries take their older ways. */
  absent: Readonly<Record<string, number>>;
}

/** Numbers that all architectures share. */
const COMMON = {
  process_madvise: 440,
  pidfd_getfd: 438,
  move_mount: 429,
  open_tree: 428,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  mount_setattr: 442,
  quotactl_fd: 443,
  memfd_secret: 447,
  process_mrelease: 448,
  set_mempolicy_home_node: 450,
};
const ABSENT = { io_uring_setup: 425, io_uring_enter: 426, io_uring_register: 427 };

const ARCHITECTURES: Partial<Record<NodeJS.Architecture, Architecture>> = {
  x64: {
    audit: 0xc000003e,
    greatest: 450,
    foreignBit: 0x40000000,
    clone: 56,
    clone3: 435,
    socket: 41,
    socketpair: 53,
    ioctl: 16,
    setpriority: 141,
    ofOneself: { sched_setparam: 142, sched_setscheduler: 144, sched_setaffinity: 203, prlimit64: 302, sched_setattr: 314 },
    absent: ABSENT,
    refused: {
      ...COMMON,
      ioprio_set: 251,
      ptrace: 101,
      syslog: 103,
      uselib: 134,
      personality: 135,
      ustat: 136,
      sysfs: 139,
      vhangup: 153,
      modify_ldt: 154,
      pivot_root: 155,
      _sysctl: 156,
      adjtimex: 159,
      chroot: 161,
      acct: 163,
      settimeofday: 164,
      mount: 165,
      umount2: 166,
      swapon: 167,
      swapoff: 168,
      reboot: 169,
      sethostname: 170,
      setdomainname: 171,
      iopl: 172,
      ioperm: 173,
      create_module: 174,
      init_module: 175,
      delete_module: 176,
      quotactl: 179,
      nfsservctl: 180,
      lookup_dcookie: 212,
      clock_settime: 227,
      mbind: 237,
      set_mempolicy: 238,
      get_mempolicy: 239,
      kexec_load: 246,
      add_key: 248,
      request_key: 249,
      keyctl: 250,
      migrate_pages: 256,
      unshare: 272,
      vmsplice: 278,
      move_pages: 279,
      perf_event_open: 298,
      fanotify_init: 300,
      fanotify_mark: 301,
      name_to_handle_at: 303,
      open_by_handle_at: 304,
      clock_adjtime: 305,
      setns: 308,
      process_vm_readv: 310,
      process_vm_writev: 311,
      kcmp: 312,
      finit_module: 313,
      kexec_file_load: 320,
      bpf: 321,
      userfaultfd: 323,
    },
  },
  arm64: {
    audit: 0xc00000b7,
    greatest: 450,
    clone: 220,
    clone3: 435,
    socket: 198,
    socketpair: 199,
    ioctl: 29,
    setpriority: 140,
    ofOneself: { sched_setparam: 118, sched_setscheduler: 119, sched_setaffinity: 122, prlimit64: 261, sched_setattr: 274 },
    absent: ABSENT,
    refused: {
      ...COMMON,
      ioprio_set: 30,
      lookup_dcookie: 18,
      umount2: 39,
      mount: 40,
      pivot_root: 41,
      nfsservctl: 42,
      chroot: 51,
      vhangup: 58,
      quotactl: 60,
      vmsplice: 75,
      acct: 89,
      personality: 92,
      unshare: 97,
      kexec_load: 104,
      init_module: 105,
      delete_module: 106,
      clock_settime: 112,
      syslog: 116,
      ptrace: 117,
      reboot: 142,
      sethostname: 161,
      setdomainname: 162,
      settimeofday: 170,
      adjtimex: 171,
      add_key: 217,
      request_key: 218,
      keyctl: 219,
      swapon: 224,
      swapoff: 225,
      mbind: 235,
      get_mempolicy: 236,
      set_mempolicy: 237,
      migrate_pages: 238,
      move_pages: 239,
      perf_event_open: 241,
      fanotify_init: 262,
      fanotify_mark: 263,
      name_to_handle_at: 264,
      open_by_handle_at: 265,
      clock_adjtime: 266,
      setns: 268,
      process_vm_readv: 270,
      process_vm_writev: 271,
      kcmp: 272,
      finit_module: 273,
      bpf: 280,
      userfaultfd: 282,
      kexec_file_load: 294,
    },
  },
};

type Label = string;
interface Instruction {
  code: number;
  k: number;
  /** Where to go on when it holds, and when not; the next instruction by default. */
  yes?: Label;
  no?: Label;
  /** Its own name. */
  at?: Label;
}

/** The program for `--seccomp`: instructions of 8 bytes. undefined: there is no table for this architecture. */
export function seccompProgram(arch: NodeJS.Architecture = process.arch): Buffer | undefined {
  const a = ARCHITECTURES[arch];
  if (!a) return undefined;
  const program: Instruction[] = [
    { code: LD, k: ARCH },
    { code: JEQ, k: a.audit, no: 'kill' },
    { code: LD, k: NR },
    ...(a.foreignBit === undefined ? [] : [{ code: JGE, k: a.foreignBit, yes: 'kill' }]),
    { code: JGT, k: a.greatest, yes: 'absent' },
    { code: JEQ, k: a.clone3, yes: 'absent' },
    ...Object.values(a.absent).map((nr) => ({ code: JEQ, k: nr, yes: 'absent' })),
    { code: JEQ, k: a.clone, yes: 'clone' },
    { code: JEQ, k: a.socket, yes: 'socket' },
    { code: JEQ, k: a.socketpair, yes: 'socketpair' },
    { code: JEQ, k: a.ioctl, yes: 'ioctl' },
    { code: JEQ, k: a.setpriority, yes: 'priority' },
    ...Object.values(a.ofOneself).map((nr) => ({ code: JEQ, k: nr, yes: 'process' })),
    ...Object.values(a.refused).map((nr) => ({ code: JEQ, k: nr, yes: 'refuse' })),
    { code: RET, k: ALLOW },
    { code: LD, k: argument(0), at: 'clone' },
    { code: JSET, k: CLONE_NEW, yes: 'refuse', no: 'allow' },
    { code: LD, k: argument(0), at: 'socket' },
    ...FAMILIES.map((family) => ({ code: JEQ, k: family, yes: 'allow' })),
    { code: RET, k: EAFNOSUPPORT },
    { code: LD, k: argument(0), at: 'socketpair' },
    { code: JEQ, k: FAMILIES[0]!, yes: 'allow', no: 'family' },
    { code: LD, k: argument(0), at: 'priority' },
    { code: JEQ, k: PRIO_PROCESS, no: 'refuse' },
    { code: LD, k: argument(1) },
    { code: JEQ, k: 0, yes: 'allow', no: 'refuse' },
    { code: LD, k: argument(0), at: 'process' },
    { code: JEQ, k: 0, yes: 'allow', no: 'refuse' },
    { code: LD, k: argument(1), at: 'ioctl' },
    ...TERMINAL_IOCTLS.map((request) => ({ code: JEQ, k: request, yes: 'refuse' })),
    { code: RET, k: ALLOW, at: 'allow' },
    { code: RET, k: EAFNOSUPPORT, at: 'family' },
    { code: RET, k: EPERM, at: 'refuse' },
    { code: RET, k: ENOSYS, at: 'absent' },
    { code: RET, k: KILL, at: 'kill' },
  ];
  return assemble(program);
}

function assemble(program: readonly Instruction[]): Buffer {
  const places = new Map(program.flatMap((instruction, i) => (instruction.at === undefined ? [] : [[instruction.at, i] as const])));
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach((instruction, i) => {
    const jump = (label: Label | undefined): number => {
      if (label === undefined) return 0;
      const distance = places.get(label)! - i - 1;
      // Backward and long jumps do not exist in classic BPF: what is jumped to stands at the end.
      if (distance < 0 || distance > 255) throw new RangeError(`seccomp: a jump of ${distance} to ${label}`);
      return distance;
    };
    bytes.writeUInt16LE(instruction.code, i * 8);
    bytes.writeUInt8(jump(instruction.yes), i * 8 + 2);
    bytes.writeUInt8(jump(instruction.no), i * 8 + 3);
    bytes.writeUInt32LE(instruction.k >>> 0, i * 8 + 4);
  });
  return bytes;
}
