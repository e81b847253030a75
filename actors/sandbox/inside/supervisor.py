# Process 1 of a sandbox: takes programs over one socket (or stdin and stdout), runs each in a child, hands back how it ended. Python programs
# are forks of this warm interpreter; JavaScript programs get a Node that was started ahead. After each program everything it left is killed.
# It cannot be reached by what it runs: not dumpable, and signals from inside do not reach process 1.
import errno, gc, json, linecache, os, resource, select, signal, stat, struct, sys, time

from _sinkflex_children import CONFIG, NODE, Tail, start

# What programs like to import: loaded while there is nothing else to do, and then theirs for nothing.
LIKED = (
    "math random itertools collections functools re string traceback threading heapq bisect operator copy datetime typing dataclasses "
    "enum decimal fractions statistics textwrap hashlib base64 array"
).split()

IN, OUT = CONFIG["in"], CONFIG["out"]
# Bytes of a stream after which a program is stopped.
FLOOD = 16 * 1024 * 1024


def not_dumpable():
    """prctl(PR_SET_DUMPABLE, 0); without ctypes, whose loading takes longer than all else here."""
    try:
        import _ctypes

        call = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
        failed = _ctypes.call_function(call, (4, 0, 0, 0, 0))
    except (ImportError, AttributeError):
        import ctypes

        failed = ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    if failed != 0:
        raise OSError("prctl(PR_SET_DUMPABLE)")


def read_exactly(n):
    parts = []
    while n > 0:
        part = os.read(IN, min(n, 1 << 20))
        if not part:
            os._exit(0)  # the owner is gone
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def receive():
    head, body = struct.unpack("<II", read_exactly(8))
    return json.loads(read_exactly(head)), read_exactly(body)


def send(header, body=b""):
    head = json.dumps(header).encode()
    data = memoryview(struct.pack("<II", len(head), len(body)) + head + body)
    while data:
        data = data[os.write(OUT, data) :]


spare = None


def keep_spare():
    global spare
    if spare is None and NODE:
        spare = start("javascript", "")


def reap():
    """Statuses of children that ended; the spare may be among them."""
    global spare
    ended = {}
    while True:
        try:
            pid, status, _ = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended[pid] = status
    if spare is not None and spare.pid in ended:
        spare.close()
        spare = None
    return ended


def others(keep):
    return [int(n) for n in os.listdir("/proc") if n.isdigit() and int(n) not in (1, keep)]


def clear(deadline):
    """Kills everything but the spare; False where something outlived it."""
    while spare is None:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            reap()
            return True
        reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0002)
    # All stop at once, so that nobody can start another while they are listed.
    while time.monotonic() < deadline:
        try:
            os.kill(-1, signal.SIGSTOP)
        except ProcessLookupError:
            pass
        left = others(spare.pid if spare else 0)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not left:
            if spare is not None:
                os.kill(spare.pid, signal.SIGCONT)
            return True
        time.sleep(0.0002)
    return False


def run(request, stdin, wake):
    global spare
    language, code = request["language"], stdin[: request["codeBytes"]].decode("utf-8", "surrogateescape")
    feed = memoryview(stdin)[request["codeBytes"] :]
    began = time.monotonic()
    deadline = began + request["timeoutMs"] / 1000
    cpu = time_of_children()
    if language == "javascript":
        if not NODE:
            send({"ok": False, "error": "there is no node in this sandbox"})
            return
        child, spare = (spare or start(language, "")), None
        program = memoryview(code.encode("utf-8", "surrogateescape"))
    else:
        child, program = start(language, code), memoryview(b"")
    out, err = Tail(request["maxOutputBytes"]), Tail(request["maxOutputBytes"])
    streams = {child.stdout: out, child.stderr: err}
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(IN, 0)  # only its end
    for fd in streams:
        poll.register(fd, select.POLLIN)
    feeds = {}
    for fd, data in ((child.stdin, feed), (child.program, program)):
        if fd is None:
            continue
        if len(data) or fd == child.program:
            feeds[fd] = data
            poll.register(fd, select.POLLOUT)
        else:
            os.close(fd)
            child.stdin = None
    ended, how = None, "exit"

    def drain(fd):
        """One read; False at the end."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return None
        if data:
            streams[fd].add(data)
        return bool(data)

    while ended is None:
        left = deadline - time.monotonic()
        if left <= 0:
            how = "timeout"
            break
        for fd, _ in poll.poll(left * 1000 + 1):
            if fd == wake:
                os.read(wake, 4096)
            elif fd == IN:
                os._exit(0)  # the owner is gone, and everything here goes with process 1
            elif fd in feeds:
                data = feeds[fd]
                try:
                    data = data[os.write(fd, data) :] if len(data) else data
                except BlockingIOError:
                    pass
                except OSError:
                    data = data[len(data) :]
                feeds[fd] = data
                if not len(data):
                    poll.unregister(fd)
                    del feeds[fd]
                    if fd == child.stdin:
                        child.stdin = None
                    else:
                        child.program = None
                    os.close(fd)
            elif drain(fd) is False:
                poll.unregister(fd)
        if out.total > FLOOD or err.total > FLOOD:
            how = "output_limit"
            break
        ended = reap().get(child.pid)
    clean = clear(time.monotonic() + 2)
    # What was written before the end; a bounded amount, for nobody is left who could add to it.
    for fd in list(streams):
        while drain(fd):
            pass
    child.close()
    code_, signal_ = None, None
    if how == "exit" and ended is not None:
        code_, signal_ = (os.WEXITSTATUS(ended), None) if os.WIFEXITED(ended) else (None, os.WTERMSIG(ended))
    stdout, stderr = out.bytes(), err.bytes()
    send(
        {
            "ok": True,
            "status": how,
            "code": code_,
            "signal": signal_,
            "stdoutBytes": len(stdout),
            "truncated": len(stdout) < out.total or len(stderr) < err.total,
            "wallMs": (time.monotonic() - began) * 1000,
            "cpuMs": (time_of_children() - cpu) * 1000,
            "clean": clean,
        },
        stdout + stderr,
    )
    if language == "javascript" or CONFIG["spareJavaScript"]:
        keep_spare()


def time_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def below_work(path):
    full = os.path.normpath(os.path.join("/episode", path))
    if not full.startswith("/episode/"):
        raise ValueError("not a path below /episode")
    return full


def write_file(request, data):
    path = below_work(request["path"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # A new file takes the place of whatever stands there, so that neither a link nor a pipe is followed.
    temporary = path + ".new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    with open(fd, "wb") as f:
        f.write(data)
    os.rename(temporary, path)
    send({"ok": True})


def read_file(request):
    path = below_work(request["path"])
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            send({"ok": True, "found": False})
            return
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        send({"ok": True, "found": False})
        return
    with open(fd, "rb") as f:
        send({"ok": True, "found": True}, f.read(request["maxBytes"]))


def main():
    not_dumpable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    wake, wake_w = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    linecache.checkcache = lambda *_: None
    gc.collect()
    gc.disable()
    gc.freeze()
    send({"ok": True, "ready": True, "python": sys.version.split()[0]})
    if CONFIG["spareJavaScript"]:
        keep_spare()
    while True:
        while LIKED and not select.select([IN], [], [], 0)[0]:
            __import__(LIKED.pop(0))
            gc.freeze()
        request, body = receive()
        try:
            op = request["op"]
            if op == "exec":
                run(request, body, wake)
            elif op == "write":
                write_file(request, body)
            elif op == "read":
                read_file(request)
            else:
                send({"ok": False, "error": "unknown request"})
        except Exception as e:
            send({"ok": False, "error": f"{type(e).__name__}: {e}"})


main()
