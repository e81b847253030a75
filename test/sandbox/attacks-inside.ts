// Attacks on what a sandbox itself runs: the supervisor, which has the user of its programs, and the Nodes that wait for the next program.
import type { Attack } from './attacks.ts';

/** Process ids of the Nodes that wait, once there is one. */
const WAITING = `
import signal, time
def waiting():
    found = []
    for n in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{n}/cmdline", "rb").read().startswith(b"/opt/sinkflex/node"): found.append(int(n))
        except OSError: pass
    return found
end = time.monotonic() + 5
while not waiting() and time.monotonic() < end: time.sleep(0.002)
`;

/** Calls by number are those of x86-64. */
export const attacksInside: Attack[] = [
  {
    n: 63,
    name: 'writes into the pipes of a Node that waits',
    code: `${WAITING}for p in waiting():\n    for fd in (0, 1, 3): os.write(os.open(f"/proc/{p}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK), b"console.log('forged');")\nprint("written")`,
    sees: 'written',
  },
  {
    n: 64,
    name: 'kills the Nodes that wait',
    code: `${WAITING}for p in waiting(): os.kill(p, signal.SIGKILL)\nprint("killed")`,
    sees: 'killed',
  },
  {
    n: 65,
    name: 'stops the Nodes that wait',
    code: `${WAITING}for p in waiting(): os.kill(p, signal.SIGSTOP)\nprint("stopped")`,
    sees: 'stopped',
  },
  {
    n: 66,
    name: 'opens the debugger of a Node that waits',
    code: `${WAITING}for p in waiting(): os.kill(p, signal.SIGUSR1)\ntime.sleep(0.1)\nprint(tried(socket.create_connection, ("127.0.0.1", 9229), 1))`,
    sees: /^(ECONNREFUSED|done)$/,
  },
  {
    n: 67,
    name: 'takes descriptors and time from process 1',
    code: 'pair = (ctypes.c_ulong * 2)(1, 1)\nprint(call(302, 1, 7, pair, 0), call(302, 1, 0, pair, 0), tried(os.setpriority, os.PRIO_PROCESS, 1, 19), tried(os.setpriority, os.PRIO_USER, 0, 19), tried(os.setpriority, os.PRIO_PGRP, 0, 19))',
    sees: 'EPERM EPERM EPERM EPERM EPERM',
  },
  {
    n: 68,
    name: 'has process 1 run last, and starves it',
    code: 'print(tried(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0)), tried(os.sched_setaffinity, 1, {0}), call(142, 1, 0), call(314, 1, 0, 0), call(251, 1, 1, 3 << 13), flush=True)\nfor _ in range(25):\n    if os.fork() == 0: break\nwhile True: pass',
    timeoutMs: 500,
    sees: (r) => r.status === 'timeout' && r.stdout.trim() === 'EPERM EPERM EPERM EPERM EPERM',
  },
  {
    n: 69,
    name: 'takes descriptors from a Node that waits',
    code: `${WAITING}print({call(302, p, 7, (ctypes.c_ulong * 2)(1, 1), 0) for p in waiting()})`,
    sees: "{'EPERM'}",
  },
  {
    n: 70,
    name: "writes process 1's settings",
    code: 'def write(n): os.write(os.open("/proc/1/" + n, os.O_WRONLY), b"1")\nprint({tried(write, n) for n in ("oom_score_adj", "comm", "clear_refs", "coredump_filter", "timerslack_ns", "autogroup", "attr/current", "uid_map", "setgroups", "loginuid")} - {"EACCES", "EPERM", "ENOENT", "EINVAL"})',
    sees: 'set()',
  },
  {
    n: 71,
    name: 'maps itself to root and out of the reach of the out-of-memory killer',
    code: 'def write(n, x): os.write(os.open("/proc/self/" + n, os.O_WRONLY), x)\nprint(tried(write, "uid_map", b"0 0 1"), tried(write, "gid_map", b"0 0 1"), tried(write, "setgroups", b"allow"), tried(write, "oom_score_adj", b"-1000"))',
    sees: /^(EPERM|EACCES) (EPERM|EACCES) (EPERM|EACCES) (EPERM|EACCES)$/,
  },
  {
    n: 72,
    name: 'mounts by the newer calls',
    code: 'print({call(430, b"tmpfs", 0), call(432, 3, 0, 0), call(428, -100, b"/", 1), call(429, -1, b"", -1, b"", 0), call(442, -1, b"", 0, 0, 0), call(433, -100, b"/", 0), call(166, b"/tmp", 0), call(155, b"/", b"/")})',
    sees: "{'EPERM'}",
  },
  {
    n: 73,
    name: 'loads kernel modules, reboots, and opens ports',
    code: 'print({call(175, 0, 0, b""), call(313, 0, b"", 0), call(246, 0, 0, 0, 0), call(169, 0, 0, 0, 0), call(172, 3), call(173, 0, 1, 1), call(163, b"/x"), call(103, 3, 0, 0), call(167, b"/x", 0), call(159, 0), call(305, 0, 0)})',
    sees: "{'EPERM'}",
  },
  { n: 74, name: 'makes keys', code: 'print(call(248, b"user", b"a", b"b", 1, -3), call(249, b"user", b"a", 0, -3))', sees: 'EPERM EPERM' },
  {
    n: 75,
    name: 'looks for devices and the memory of the kernel',
    code: 'print({tried(open, p) for p in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vsock", "/dev/sda", "/dev/vda", "/proc/kcore", "/proc/kmsg", "/sys/kernel")} <= {"ENOENT", "EACCES", "EPERM"})',
    sees: 'True',
  },
  {
    n: 76,
    name: 'makes a file of a terabyte',
    code: 'import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfd = os.open("big", os.O_CREAT | os.O_RDWR)\nprint(tried(os.truncate, "big", 1 << 40), tried(os.posix_fallocate, fd, 0, 1 << 30))',
    sees: 'EFBIG EFBIG',
  },
  {
    n: 77,
    name: 'locks memory, asks for huge pages',
    code: 'print(call(151, 3), call(9, 0, 1 << 21, 3, 0x40022, -1, 0))',
    sees: /^(ENOMEM|EPERM) (ENOMEM|EPERM|EACCES)$/,
  },
  {
    n: 78,
    name: 'fills pipes',
    code: 'import fcntl\nx = []\ntry:\n    while True:\n        x += os.pipe()\n        os.set_blocking(x[-1], False)\n        tried(fcntl.fcntl, x[-1], 1031, 1 << 20)\n        while tried(os.write, x[-1], bytes(65536)) == "done": pass\nexcept OSError as e: print(errno.errorcode[e.errno])',
    sees: (r) => r.stdout.trim() === 'EMFILE' || ['oom', 'agent_killed'].includes(r.status),
    mayDie: true,
  },
  {
    n: 79,
    name: 'fills buffers of sockets',
    code: 'x = []\ntry:\n    while True:\n        x += socket.socketpair()\n        x[-1].setblocking(False)\n        while tried(x[-1].send, bytes(65536)) == "done": pass\nexcept OSError as e: print(errno.errorcode[e.errno])',
    sees: (r) => r.stdout.trim() === 'EMFILE' || ['oom', 'agent_killed'].includes(r.status),
    mayDie: true,
  },
  {
    n: 80,
    name: 'runs a copy of a program with the rights of its owner',
    language: 'shell',
    code: 'cp /usr/bin/id id; chmod 6755 id; ./id -u',
    sees: '65534',
  },
  { n: 81, name: 'shuts its own folder', code: 'os.chmod("/episode", 0)\nprint("shut")', sees: 'shut' },
  {
    n: 82,
    name: 'changes the network',
    code: 'import fcntl\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint(tried(fcntl.ioctl, s, 0x8914, b"lo" + bytes(30)), tried(fcntl.ioctl, s, 0x890B, bytes(120)), tried(s.sendto, b"x", ("169.254.169.254", 80)), tried(s.sendto, b"x", ("255.255.255.255", 80)))',
    sees: /^EPERM EPERM E\w+ E\w+$/,
  },
  {
    n: 83,
    name: 'becomes another program that ignores signals',
    code: 'os.execv("/bin/sh", ["sh", "-c", "trap : TERM INT HUP; while :; do :; done"])',
    timeoutMs: 200,
    sees: (r) => r.status === 'timeout',
  },
  {
    n: 84,
    name: 'reaches process 1 from JavaScript',
    language: 'javascript',
    code: "for (const f of [() => process.dlopen({ exports: {} }, '/proc/1/mem'), () => process.setuid(0), () => process.chdir('/proc/1/cwd'), () => require('os').setPriority(1, 19), () => process.kill(1, 'SIGKILL')]) try { f(); console.log('done'); } catch (e) { console.log(e.code); }",
    sees: /^ERR_DLOPEN_FAILED\n(EINVAL|EPERM)\nEACCES\n(EACCES|EPERM|ERR_SYSTEM_ERROR)\ndone$/,
  },
  {
    n: 85,
    name: 'fills memory of WebAssembly',
    language: 'javascript',
    code: 'const m = new WebAssembly.Memory({ initial: 1, maximum: 65536 }); m.grow(60000); const a = new Uint8Array(m.buffer); for (let i = 0; i < a.length; i += 4096) a[i] = 1;',
    sees: (r) => ['oom', 'agent_killed'].includes(r.status) || /RangeError/.test(r.stderr),
    mayDie: true,
  },
];
