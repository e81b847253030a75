# Run once in a sandbox of its own before anything untrusted: says what is in force, as seen from inside. Prints one JSON object.
import ctypes, json, os, resource, socket, sys

wanted = json.loads(sys.stdin.read())
libc = ctypes.CDLL(None, use_errno=True)


def refused(call, *arguments):
    """errno of a system call; 0 where it went through."""
    ctypes.set_errno(0)
    return 0 if call(*arguments) != -1 else ctypes.get_errno()


def status():
    with open("/proc/self/status") as f:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in f)}


def writable(path):
    try:
        with open(os.path.join(path, "probe"), "w"):
            pass
        os.unlink(os.path.join(path, "probe"))
        return True
    except OSError:
        return False


def size(path):
    s = os.statvfs(path)
    return s.f_frsize * s.f_blocks


def namespace(name):
    try:
        return os.readlink("/proc/self/ns/" + name)
    except OSError:
        return "none"


def vsock():
    try:
        socket.socket(40, socket.SOCK_STREAM).close()
        return 0
    except OSError as e:
        return e.errno


def readable(path):
    try:
        if os.path.isdir(path):
            return len(os.listdir(path)) > 0
        with open(path, "rb") as f:
            f.read(1)
        return True
    except OSError:
        return False


def openable():
    """Descriptors of process 1 that can be opened for writing."""
    out = []
    try:
        for name in os.listdir("/proc/1/fd"):
            try:
                os.close(os.open("/proc/1/fd/" + name, os.O_WRONLY | os.O_NONBLOCK))
                out.append("/proc/1/fd/" + name)
            except OSError:
                pass
    except OSError:
        pass
    return out


with open("/proc/net/dev") as f:
    interfaces = [line.split(":")[0].strip() for line in f.readlines()[2:]]

own = status()
print(
    json.dumps(
        {
            "uid": os.getuid(),
            "capabilities": [own.get(k, "?") for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
            "noNewPrivs": own.get("NoNewPrivs"),
            "seccomp": own.get("Seccomp"),
            "vsock": vsock(),
            "unshare": refused(libc.unshare, 0x10000000),
            "ptrace": refused(libc.ptrace, 0, 0, 0, 0),
            "prlimit": refused(libc.prlimit, 1, resource.RLIMIT_NOFILE, None, None),
            "namespaces": {n: namespace(n) for n in ("pid", "net", "ipc", "uts", "mnt", "user", "cgroup")},
            "interfaces": interfaces,
            "writable": [p for p in ("/", "/usr", "/usr/lib", "/dev", "/etc", "/opt", "/proc", "/opt/sinkflex") if writable(p)],
            "visible": [p for p in wanted["hidden"] if os.path.exists(p)],
            "sizes": {p: size(p) for p in ("/episode", "/tmp", "/dev/shm")},
            "nproc": resource.getrlimit(resource.RLIMIT_NPROC)[0],
            "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
            "addressSpace": resource.getrlimit(resource.RLIMIT_AS)[0],
            "environment": sorted(os.environ),
            "kernel": " ".join(os.uname()[2:4]),
            "supervisor": [p for p in ("/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/fd") if readable(p)],
            "openable": openable(),
            "descriptors": sorted(int(n) for n in os.listdir("/proc/self/fd")),
        }
    )
)
