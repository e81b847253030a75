// Attacks on a sandbox, numbered. Each is a program that tries, and what must be seen of it; the rest of the machine is looked at by the test.
import type { ExecResult, SandboxLanguage } from '../../actors/sandbox/index.ts';

export interface Attack {
  n: number;
  name: string;
  code: string;
  language?: SandboxLanguage;
  timeoutMs?: number;
  /** What the program prints, trimmed; or a look at the result. */
  sees: string | RegExp | ((r: ExecResult) => boolean);
  /** The sandbox may be gone afterwards, by the program's own doing. */
  mayDie?: boolean;
}

/** Helpers that the programs share: `tried` prints the name of the error, or "done". */
const PRELUDE = `
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(f, *a):
    try:
        f(*a)
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
def call(nr, *a):
    ctypes.set_errno(0)
    r = libc.syscall(nr, *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    return "done" if r >= 0 else errno.errorcode[ctypes.get_errno()]
`;

const status =
  (...allowed: string[]) =>
  (r: ExecResult) =>
    allowed.includes(r.status);

/** `port`: something listens there on the host's loopback; `abstract`: and there. System-call numbers are those of x86-64. */
export const attacks = (host: { port: number; abstract: string; home: string; pid: number }): Attack[] => [
  {
    n: 1,
    name: "reads the host's user list",
    code: 'print(len(open("/etc/passwd").readlines()), tried(open, "/etc/shadow"))',
    sees: '1 ENOENT',
  },
  {
    n: 2,
    name: "reads the owner's home and root's",
    code: `print(tried(os.listdir, ${JSON.stringify(host.home)}), tried(os.listdir, "/root"), tried(os.listdir, "/proc/1/root"))`,
    sees: 'ENOENT ENOENT EACCES',
  },
  {
    n: 3,
    name: "reads its parents' environment",
    code: 'print(tried(open, "/proc/1/environ"), sorted(os.environ))',
    sees: /^EACCES \['HOME', 'LANG', (?:'LC_CTYPE', )?'PATH', 'PWD', 'PYTHONHASHSEED', 'UV_THREADPOOL_SIZE'\]$/,
  },
  {
    n: 4,
    name: 'connects to the host and beyond',
    code: `print(tried(socket.create_connection, ("127.0.0.1", ${host.port}), 1), tried(socket.create_connection, ("192.0.2.1", 80), 1))`,
    sees: 'ECONNREFUSED ENETUNREACH',
  },
  {
    n: 5,
    name: 'opens sockets that namespaces do not confine',
    code: 'print(*[tried(socket.socket, f, socket.SOCK_DGRAM) for f in (40, 16, 17, 38, 31, 44)])',
    sees: 'EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT',
  },
  {
    n: 6,
    name: 'starts as many processes as it can',
    code: 'import time\nn = 0\ntry:\n    while n < 500:\n        if os.fork() == 0:\n            time.sleep(30)\n            os._exit(0)\n        n += 1\nexcept OSError as e:\n    print(errno.errorcode[e.errno], n < 64)',
    sees: 'EAGAIN True',
  },
  {
    n: 7,
    name: 'forks without end',
    code: 'while True:\n    try:\n        os.fork()\n    except OSError:\n        pass',
    timeoutMs: 400,
    sees: status('timeout', 'exit', 'oom'),
  },
  { n: 8, name: 'takes all memory', code: 'x = []\nwhile True: x.append(bytearray(1 << 22))', sees: status('oom') },
  {
    n: 9,
    name: 'takes all memory from many processes',
    code: 'for _ in range(8):\n    if os.fork() == 0: break\nx = []\nwhile True: x.append(bytearray(1 << 22))',
    sees: status('oom', 'timeout', 'exit'),
    timeoutMs: 3000,
    mayDie: true,
  },
  {
    n: 10,
    name: 'fills the disk',
    code: 'def fill(p):\n    with open(p, "wb") as f:\n        for _ in range(64): f.write(bytes(1 << 20))\nprint(tried(fill, "/episode/x"), os.path.getsize("/episode/x") <= 8 << 20, tried(fill, "/tmp/x"))',
    sees: /^(ENOSPC|EFBIG) True (ENOSPC|EFBIG)$/,
  },
  {
    n: 11,
    name: 'fills shared memory',
    code: 'def fill():\n    with open("/dev/shm/x", "wb") as f: f.write(bytes(4 << 20))\nprint(tried(fill))',
    sees: 'ENOSPC',
  },
  {
    n: 12,
    name: 'writes where nothing may be written',
    code: 'print(*[tried(open, p + "/x", "w") for p in ("", "/dev", "/usr", "/usr/lib", "/etc", "/opt", "/opt/sinkflex")])',
    sees: 'EROFS EROFS EROFS EROFS EROFS EROFS EROFS',
  },
  {
    n: 13,
    name: 'makes files without end',
    code: 'i = 0\nwhile True:\n    open(f"/episode/{i}", "w").close()\n    i += 1',
    timeoutMs: 1500,
    sees: status('timeout', 'oom', 'agent_killed', 'exit'),
    mayDie: true,
  },
  {
    n: 14,
    name: 'prints without end',
    code: 'while True: print("x" * 4096)',
    sees: (r) => r.status === 'output_limit' && r.truncated && r.stdout.length <= 65536,
  },
  { n: 15, name: 'traces process 1', code: 'print(call(101, 16, 1, 0, 0), call(101, 0, 0, 0, 0))', sees: 'EPERM EPERM' },
  {
    n: 16,
    name: "writes process 1's memory",
    code: 'print(tried(open, "/proc/1/mem", "r+b"), tried(open, "/proc/1/maps"))',
    sees: 'EACCES EACCES',
  },
  { n: 17, name: "opens process 1's descriptors", code: 'print(tried(os.listdir, "/proc/1/fd"))', sees: 'EACCES' },
  {
    n: 18,
    name: 'makes namespaces and mounts',
    code: 'print(call(272, 0x10000000), call(165, 0, 0, 0, 0, 0), call(435, 0, 0), call(56, 0x10000011, 0, 0, 0, 0), call(308, 0, 0))',
    sees: 'EPERM EPERM ENOSYS EPERM EPERM',
  },
  {
    n: 19,
    name: 'asks for io_uring, bpf and keys',
    code: 'print(call(425, 1, 0), call(321, 0, 0, 0), call(250, 0, 0))',
    sees: 'ENOSYS EPERM EPERM',
  },
  { n: 20, name: 'kills process 1', code: 'import signal\nfor s in range(1, 65): tried(os.kill, 1, s)\nprint("alive")', sees: 'alive' },
  {
    n: 21,
    name: 'leaves a daemon behind',
    code: 'import time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for fd in range(3): os.close(fd)\n        time.sleep(60)\n    os._exit(0)\nprint("left")',
    sees: 'left',
  },
  {
    n: 22,
    name: 'ignores every signal that it can',
    code: 'import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass',
    timeoutMs: 150,
    sees: status('timeout'),
  },
  { n: 23, name: 'computes a number without end in one instruction', code: 'print(9**9**8)', timeoutMs: 150, sees: status('timeout') },
  { n: 24, name: 'waits for input', code: 'print(repr(sys.stdin.read()))', sees: "''" },
  {
    n: 25,
    name: 'opens files without end',
    code: 'x = []\ntry:\n    while True: x.append(open("/dev/null"))\nexcept OSError as e: print(errno.errorcode[e.errno], len(x) < 128)',
    sees: 'EMFILE True',
  },
  { n: 26, name: 'leaves zombies', code: 'for _ in range(20):\n    if os.fork() == 0: os._exit(0)\nprint("left")', sees: 'left' },
  {
    n: 27,
    name: "forges the supervisor's answer",
    code: 'import struct, json\nh = json.dumps({"ok": True, "status": "exit", "code": 0, "signal": None, "stdoutBytes": 6, "truncated": False, "wallMs": 0, "cpuMs": 0, "clean": True}).encode()\nd = struct.pack("<II", len(h), 6) + h + b"forged"\nprint([n for n in range(3, 64) if tried(os.write, n, d) == "done"])',
    sees: '[]',
  },
  {
    n: 28,
    name: 'becomes root',
    code: 'print(tried(os.setuid, 0), tried(os.setgid, 0), tried(os.setgroups, [0]), os.getuid())',
    sees: 'EINVAL EINVAL EPERM 65534',
  },
  {
    n: 29,
    name: 'runs programs that are root for others',
    code: 'su -c id </dev/null; mount /episode; newgrp root </dev/null; chmod u+s /bin/sh; echo tried',
    language: 'shell',
    sees: 'tried',
  },
  { n: 30, name: 'changes its root folder', code: 'print(call(161, b"/tmp"))', sees: 'EPERM' },
  {
    n: 31,
    name: 'makes device nodes',
    code: 'print(tried(os.mknod, "/episode/d", 0o60600, os.makedev(8, 0)), tried(os.mknod, "/episode/k", 0o20600, os.makedev(1, 1)))',
    sees: 'EPERM EPERM',
  },
  {
    n: 32,
    name: 'opens raw sockets',
    code: 'print(tried(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1), tried(socket.socket, 17, socket.SOCK_RAW, 3))',
    sees: 'EPERM EAFNOSUPPORT',
  },
  {
    n: 33,
    name: 'sets kernel parameters',
    code: 'print(tried(open, "/proc/sys/kernel/core_pattern", "w"), tried(open, "/proc/sysrq-trigger", "w"), tried(open, "/proc/sys/kernel/hostname", "w"))',
    sees: /^(EROFS|EACCES) (EROFS|EACCES|ENOENT) (EROFS|EACCES)$/,
  },
  {
    n: 34,
    name: 'looks for the control groups',
    code: 'print(tried(os.listdir, "/sys/fs/cgroup"), tried(os.listdir, "/sys"), tried(os.listdir, "/run"))',
    sees: 'ENOENT ENOENT ENOENT',
  },
  {
    n: 35,
    name: "reads process 1's memory across",
    code: 'b = ctypes.create_string_buffer(8)\nprint(call(310, 1, b, 1, b, 1, 0), call(311, 1, b, 1, b, 1, 0))',
    sees: 'EPERM EPERM',
  },
  { n: 36, name: "steals process 1's descriptors", code: 'p = libc.syscall(434, 1, 0)\nprint(call(438, p, 3, 0))', sees: 'EPERM' },
  {
    n: 37,
    name: 'asks for userfaultfd, performance events and handles',
    code: 'print(call(323, 0), call(298, 0, 0, 0, 0, 0), call(304, 0, 0, 0), call(303, 0, 0, 0, 0, 0), call(447, 0))',
    sees: 'EPERM EPERM EPERM EPERM EPERM',
  },
  {
    n: 38,
    name: 'types into a terminal',
    code: 'import fcntl\nprint(tried(fcntl.ioctl, 0, 0x5412, b"x"), tried(open, "/dev/tty"))',
    sees: /^EPERM E\w+$/,
  },
  {
    n: 39,
    name: 'sets the clock and the name',
    code: 'print(call(227, 0, 0), call(170, b"x", 1), call(164, 0, 0))',
    sees: 'EPERM EPERM EPERM',
  },
  {
    n: 40,
    name: 'asks for real-time scheduling and a better place',
    code: 'print(tried(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50)), tried(os.nice, -15))',
    sees: 'EPERM EPERM',
  },
  {
    n: 41,
    name: 'starves the supervisor',
    code: 'for _ in range(25):\n    if os.fork() == 0: break\nwhile True: pass',
    timeoutMs: 500,
    sees: status('timeout'),
  },
  {
    n: 42,
    name: 'raises its limits',
    code: 'import resource\nprint(*["raised" if _raise(r) else "refused" for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE)])',
    sees: 'refused refused refused',
  },
  { n: 43, name: 'kills and stops everything beside it', code: 'import signal\nos.kill(-1, signal.SIGKILL)\nprint("done")', sees: 'done' },
  {
    n: 44,
    name: 'reaches the network from JavaScript',
    language: 'javascript',
    code: `fetch('http://127.0.0.1:${host.port}').then(() => console.log('reached'), (e) => console.log(e.cause.code));`,
    sees: 'ECONNREFUSED',
  },
  { n: 45, name: 'loops without end in JavaScript', language: 'javascript', code: 'for (;;);', timeoutMs: 300, sees: status('timeout') },
  {
    n: 46,
    name: 'takes all memory in JavaScript',
    language: 'javascript',
    code: 'const x = []; for (;;) x.push(Buffer.alloc(1 << 22, 1));',
    sees: status('oom', 'agent_killed'),
    mayDie: true,
  },
  {
    n: 47,
    name: 'fills the JavaScript heap',
    language: 'javascript',
    code: 'const x = []; for (;;) x.push({ a: [1, 2, 3] });',
    sees: (r) => r.status === 'oom' || r.signal === 6 || r.signal === 5 || r.signal === 4,
    mayDie: true,
  },
  {
    n: 48,
    name: 'starts programs from JavaScript',
    language: 'javascript',
    code: "console.log(require('child_process').execSync('id -u').toString().trim(), require('fs').readdirSync('/').includes('root'))",
    sees: '65534 false',
  },
  {
    n: 49,
    name: "looks for a token of the owner's in every process",
    code: 'import glob\nfound = []\nfor p in glob.glob("/proc/[0-9]*/*"):\n    if p.endswith(("environ", "cmdline")):\n        try: found += [p] if b"canary-of-the-owner" in open(p, "rb").read() and "/self" not in p and p.split("/")[2] != str(os.getpid()) else []\n        except OSError: pass\nprint(found)',
    sees: '[]',
  },
  {
    n: 50,
    name: "connects to the host's abstract sockets",
    code: `s = socket.socket(socket.AF_UNIX)\nprint(tried(s.connect, "\\0${host.abstract}"))`,
    sees: 'ECONNREFUSED',
  },
  {
    n: 51,
    name: "sees or signals the host's processes",
    code: `print(len([n for n in os.listdir("/proc") if n.isdigit()]) < 6, tried(os.kill, ${host.pid}, 0))`,
    sees: 'True ESRCH',
  },
  {
    n: 52,
    name: 'changes the interpreter for the next program',
    code: 'import math, builtins\nmath.sqrt = lambda x: 42\nbuiltins.len = lambda x: 42\nprint("changed")',
    sees: 'changed',
  },
  {
    n: 53,
    name: 'prints what a frame looks like',
    code: 'os.write(1, b"\\x02\\0\\0\\0\\0\\0\\0\\0{}" + bytes(range(256)) * 8)',
    sees: (r) => r.status === 'exit' && r.code === 0,
  },
  { n: 54, name: 'dumps core', code: 'import signal\nos.kill(os.getpid(), signal.SIGSEGV)', sees: (r) => r.signal === 11 },
  {
    n: 55,
    name: 'takes memory that no file system counts',
    code: 'fd = os.memfd_create("x")\nwhile True: os.write(fd, bytes(1 << 22))',
    sees: (r) => r.status === 'oom' || /EFBIG|File too large/.test(r.stderr) || r.signal === 25,
  },
  {
    n: 56,
    name: 'takes shared memory of System V',
    code: 'import time\nlibc.shmat.restype = ctypes.c_void_p\nwhile True:\n    i = libc.shmget(0, 1 << 24, 0o1600)\n    if i < 0: break\n    a = libc.shmat(i, None, 0)\n    ctypes.memset(a, 1, 1 << 24)\nprint("stopped")',
    sees: (r) => r.status === 'oom' || r.status === 'agent_killed',
    mayDie: true,
  },
  {
    n: 57,
    name: 'forks without end from a shell',
    language: 'shell',
    code: 'b() { b | b & }; b; sleep 1',
    timeoutMs: 600,
    sees: status('exit', 'timeout'),
  },
  {
    n: 58,
    name: 'links files of the system into its own folder',
    code: 'print(tried(os.link, "/usr/bin/env", "/episode/env"))',
    sees: /^(EXDEV|EPERM)$/,
  },
  { n: 59, name: 'calls through the 32-bit entry', code: 'print(call(0x40000000 | 39))', sees: (r) => r.signal === 31 },
  { n: 60, name: 'asks for calls newer than the filter', code: 'print(call(460), call(462))', sees: 'ENOSYS ENOSYS' },
  {
    n: 61,
    name: 'hides its output behind a process that keeps the pipe',
    code: 'import time\nif os.fork() == 0:\n    time.sleep(60)\nprint("parent")',
    sees: 'parent',
  },
  {
    n: 62,
    name: 'moves itself to another control group',
    code: 'print({line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup")}, tried(os.mkdir, "/sys"), tried(open, "/proc/self/cgroup", "w"))',
    sees: "{'/'} EROFS EACCES",
  },
];

export const program = (a: Attack): string =>
  (a.language ?? 'python') !== 'python' ? a.code : `${PRELUDE}${a.n === 42 ? RAISE : ''}${a.code}`;

const RAISE = `
def _raise(r):
    import resource
    try:
        resource.setrlimit(r, (1 << 20, 1 << 20))
        return True
    except (OSError, ValueError):
        return False
`;
