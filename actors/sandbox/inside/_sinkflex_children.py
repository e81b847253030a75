# Starts a program in a child of the supervisor: Python as a fork of this interpreter, JavaScript and shell as programs of their own, each with its
# descriptors, limits and user set before anything untrusted runs.
import atexit, fcntl, gc, io, json, linecache, os, resource, signal, sys

CONFIG = json.loads(sys.argv[1])
NODE, LIMITS = CONFIG["node"], CONFIG["limits"]
MAX_FD = 4096


class Tail:
    """The last bytes of a stream."""

    def __init__(self, keep):
        self.keep, self.total, self.parts, self.held = keep, 0, [], 0

    def add(self, data):
        self.total += len(data)
        self.parts.append(data)
        self.held += len(data)
        if self.held > 2 * self.keep + (1 << 16):
            kept = b"".join(self.parts)[-self.keep :] if self.keep else b""
            self.parts, self.held = [kept], len(kept)

    def bytes(self):
        return b"".join(self.parts)[-self.keep :] if self.keep else b""


class Child:
    def __init__(self, pid, stdin, stdout, stderr, program=None):
        self.pid, self.stdin, self.stdout, self.stderr, self.program = pid, stdin, stdout, stderr, program

    def close(self):
        for fd in (self.stdin, self.stdout, self.stderr, self.program):
            if fd is not None:
                try:
                    os.close(fd)
                except OSError:
                    pass
        self.stdin = self.stdout = self.stderr = self.program = None


def limit_child(language):
    """In the child, before anything untrusted."""
    os.setsid()
    os.umask(0o022)
    if CONFIG["user"] is not None:
        os.setgroups([])
        os.setresgid(CONFIG["user"], CONFIG["user"], CONFIG["user"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMITS["openFiles"], LIMITS["openFiles"]))
    resource.setrlimit(resource.RLIMIT_NPROC, (LIMITS["processes"], LIMITS["processes"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMITS["diskBytes"], LIMITS["diskBytes"]))
    if CONFIG["addressSpace"] and language != "javascript":
        resource.setrlimit(resource.RLIMIT_AS, (LIMITS["memoryBytes"], LIMITS["memoryBytes"]))
    # When memory runs out the program goes before its supervisor; when time is short the supervisor goes first.
    try:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")
    except OSError:
        pass
    if language != "javascript":
        os.nice(10)
    if CONFIG["user"] is not None:
        os.setresuid(CONFIG["user"], CONFIG["user"], CONFIG["user"])


def start(language, code):
    stdin_r, stdin_w = os.pipe()
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    program_r = program_w = None
    if language == "javascript":
        program_r, program_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for s in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
                signal.signal(s, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # Above the descriptors that are to be filled, so that none is overwritten before it is copied.
            wanted = [stdin_r, out_w, err_w] + ([program_r] if program_r is not None else [])
            copies = [above(fd) for fd in wanted]
            for target, fd in enumerate(copies):
                os.dup2(fd, target)
            os.closerange(len(wanted), MAX_FD)
            enter_episode()
            limit_child(language)
            if language == "javascript":
                os.execve(NODE[0], NODE, dict(os.environ))
            elif language == "shell":
                os.execve("/bin/sh", ["sh", "-c", code], dict(os.environ))
            else:
                status = run_python(code)
        except BaseException:
            try:
                import traceback

                os.write(2, traceback.format_exc().encode())
            except BaseException:
                pass
        finally:
            os._exit(status)
    os.close(stdin_r)
    os.close(out_w)
    os.close(err_w)
    if program_r is not None:
        os.close(program_r)
    for fd in (stdin_w, out_r, err_r, program_w):
        if fd is not None:
            os.set_blocking(fd, False)
    return Child(pid, stdin_w, out_r, err_r, program_w)


def enter_episode():
    try:
        os.chdir("/episode")
    except PermissionError:
        # An earlier program shut it; it is its owner's.
        os.chmod("/episode", 0o755)
        os.chdir("/episode")


def above(fd):
    return fcntl.fcntl(fd, fcntl.F_DUPFD, 200)


def run_python(code):
    sys.argv = ["main.py"]
    del sys.modules[__name__]
    sys.path[:] = [p for p in sys.path if not p.startswith(CONFIG["home"])]
    sys.path.insert(0, "/episode")
    sys.stdin = io.TextIOWrapper(io.FileIO(0, "r", closefd=False), encoding="utf-8", errors="replace")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    module = type(sys)("__main__")
    module.__dict__.update(__builtins__=__builtins__, __file__="/episode/main.py", exit=sys.exit, quit=sys.exit)
    sys.modules["__main__"] = module
    linecache.cache["main.py"] = (len(code), None, code.splitlines(True), "main.py")
    gc.enable()
    status = 0
    try:
        exec(compile(code, "main.py", "exec"), module.__dict__)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            status = (e.code or 0) & 0xFF
        else:
            print(e.code, file=sys.stderr)
            status = 1
    except BaseException as e:
        import traceback

        # Without the frame above the program's own.
        own = e.__traceback__.tb_next if e.__traceback__ else None
        traceback.print_exception(type(e), e, own)
        status = 1
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException as e:
        sys.excepthook(type(e), e, e.__traceback__)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            status = status or 120
    return status
