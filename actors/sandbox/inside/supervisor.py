# Process 1 of a sandbox: takes programs over one socket (or stdin and stdout), runs each in a child, hands back how it ended. Python programs
# are forks of this warm interpreter; JavaScript programs get a Node that was started ahead. After each program everything it left is killed.
# It cannot be reached by what it runs: not dumpable, and signals from inside do not reach process 1.
import errno, fcntl, gc, json, linecache, os, resource, select, signal, stat, struct, sys, termios, time

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


# Nodes that were started ahead, the oldest first: one may still be starting when the next program comes.
SPARES = 2
spares = []


def keep_spares():
    while NODE and CONFIG["spareJavaScript"] and len(spares) < SPARES:
        spares.append(start("javascript", ""))


def take_node():
    """A Node that waits for its program. One that somebody killed or whose pipes somebody wrote into while it waited is not used."""
    reap()
    while spares:
        child = spares.pop(0)
        if not any(map(waiting_bytes, (child.stdin, child.stdout, child.stderr, child.program))):
            return child
        os.kill(child.pid, signal.SIGKILL)
        child.close()
    return start("javascript", "")


def waiting_bytes(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


def reap():
    """Statuses of children that ended; spares may be among them."""
    ended = {}
    while True:
        try:
            pid, status, _ = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended[pid] = status
    for spare in [s for s in spares if s.pid in ended]:
        spare.close()
        spares.remove(spare)
    return ended


def others(keep):
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != 1 and pid not in keep]


def clear(deadline):
    """Kills everything but the spares; False where something outlived it."""
    while not spares:
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
        left = others({s.pid for s in spares})
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not left:
            for spare in spares:
                os.kill(spare.pid, signal.SIGCONT)
            return True
        time.sleep(0.0002)
    return False


def run(request, stdin, wake):
    language, code = request["language"], stdin[: request["codeBytes"]].decode("utf-8", "surrogateescape")
    feed = memoryview(stdin)[request["codeBytes"] :]
    began = time.monotonic()
    deadline = began + request["timeoutMs"] / 1000
    cpu = time_of_children()
    if language == "javascript":
        if not NODE:
            send({"ok": False, "error": "there is no node in this sandbox"})
            return
        child = take_node()
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
    keep_spares()


def time_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def below_work(path, make=False):
    """The folder of a path below /episode, opened, and its last name. Goes through no link: a program may have put them there."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or [".."]
    if ".." in folders or name == "..":
        raise ValueError("not a path below /episode")
    here = os.open("/episode", os.O_PATH | os.O_DIRECTORY)
    for folder in folders:
        above_it = here
        try:
            if make:
                try:
                    os.mkdir(folder, 0o755, dir_fd=above_it)
                except FileExistsError:
                    pass
            here = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above_it)
        finally:
            os.close(above_it)
    return here, name


def write_file(request, data):
    folder, name = below_work(request["path"], make=True)
    # A new file takes the place of whatever stands there, so that neither a link nor a pipe is followed.
    temporary = f".{os.urandom(8).hex()}.new"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        try:
            with open(fd, "wb") as f:
                f.write(data)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)
    send({"ok": True})


def read_file(request):
    folder = None
    try:
        folder, name = below_work(request["path"])
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.EACCES):
            send({"ok": True, "found": False})
            return
        raise
    finally:
        if folder is not None:
            os.close(folder)
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
    keep_spares()
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
