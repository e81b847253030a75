"""Ray's side of the suite `runtime`: one process, kept for all rows, that measures what it is asked.

A line of JSON in, {"op": name, ...arguments}; a line of JSON out, {"value": ...} or {"error": text}. Ours and Ray's turns alternate, so
every operation is one turn: it answers the figure of that turn, and the bench takes medians over turns. Ends with its input.
"""
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
folder = tempfile.mkdtemp(prefix="sfx-ray-", dir="/tmp")  # short: socket paths below it must fit in 107 bytes
os.environ["RAY_TMPDIR"] = folder
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Ray prints must not mix with answers

import numpy as np  # noqa: E402
import ray  # noqa: E402

clock = time.perf_counter


@ray.remote(num_cpus=0)
class Peer:
    def noop(self):
        return b"ok"

    def pid(self):
        return os.getpid()

    def echo(self, x):
        return x

    def first(self, x):
        return float(x[0])

    def sleep(self, seconds):
        time.sleep(seconds)

    def items(self, n):
        for _ in range(n):
            yield b"ok"

    def flood(self, others, n):
        """n calls, dealt out to the others in turn."""
        ray.get([others[i % len(others)].noop.remote() for i in range(n)])


@ray.remote
def nothing():
    return b"ok"


kept = {}


def actor():
    """One warm actor for the rows that need no more."""
    if "one" not in kept:
        kept["one"] = Peer.remote()
        ray.get([kept["one"].noop.remote() for _ in range(200)])
    return kept["one"]


def seconds(work):
    start = clock()
    work()
    return clock() - start


def spread(samples, scale):
    ordered = sorted(samples)
    return {
        "median": statistics.median(ordered) * scale,
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * scale,
    }


def actor_sync(n):
    a = actor()
    return spread([seconds(lambda: ray.get(a.noop.remote())) for _ in range(n)], 1e6)


def actor_async(n):
    a = actor()
    return n / seconds(lambda: ray.get([a.noop.remote() for _ in range(n)]))


def actor_nn(m, n):
    if "nn" not in kept:
        kept["nn"] = [Peer.remote() for _ in range(m)], [Peer.remote() for _ in range(m)]
        ray.get([a.noop.remote() for group in kept["nn"] for a in group])
    callers, callees = kept["nn"]
    return m * n / seconds(lambda: ray.get([c.flood.remote(callees, n) for c in callers]))


def actor_nn_end():
    for group in kept.pop("nn", ()):
        for a in group:
            ray.kill(a)


def task_sync(n):
    return spread([seconds(lambda: ray.get(nothing.remote())) for _ in range(n)], 1e6)


def task_async(n):
    return n / seconds(lambda: ray.get([nothing.remote() for _ in range(n)]))


def actor_stream(n):
    a = actor()

    def read():
        for ref in a.items.options(num_returns="streaming").remote(n):
            ray.get(ref)

    return n / seconds(read)


def actor_create():
    start = clock()
    a = Peer.remote()
    ray.get(a.noop.remote())
    took = clock() - start
    ray.kill(a)
    return took * 1e3


def echo(size, n):
    a = actor()
    x = np.ones(size, dtype=np.uint8)
    return spread([seconds(lambda: ray.get(a.echo.remote(x))) for _ in range(n)], 1e3)


def floats(size):
    if size not in kept:
        for other in [key for key in kept if isinstance(key, int)]:
            del kept[other]
        kept[size] = np.ones(size // 4, dtype=np.float32)
    return kept[size]


def object_put(size):
    """GB/s of one put and microseconds of its get."""
    x = floats(size)
    start = clock()
    ref = ray.put(x)
    put = clock() - start
    start = clock()
    value = ray.get(ref)
    got = clock() - start
    assert value[-1] == 1
    del value, ref
    time.sleep(0.3)  # the store frees it a little later; the next put finds its pages
    return {"put": size / put / 1e9, "get": got * 1e6}


def object_broadcast(size, m):
    if "readers" not in kept:
        kept["readers"] = [Peer.remote() for _ in range(m)]
        ray.get([a.noop.remote() for a in kept["readers"]])
    x = floats(size)
    start = clock()
    ref = ray.put(x)
    ray.get([a.first.remote(ref) for a in kept["readers"]])
    took = clock() - start
    del ref
    time.sleep(0.3)
    return took * 1e3


def object_end():
    for key in [key for key in kept if isinstance(key, int)]:
        del kept[key]
    for a in kept.pop("readers", ()):
        ray.kill(a)


def group_create(n):
    def turn():
        groups = [ray.util.placement_group([{"custom": 0.001}]) for _ in range(n)]
        for g in groups:
            g.wait(timeout_seconds=30)
        for g in groups:
            ray.util.remove_placement_group(g)

    return n / seconds(turn)


def fault_kill():
    """Milliseconds from SIGKILL of a restartable actor to the error of a call under way, and to the next answer."""
    a = Peer.options(max_restarts=-1, max_task_retries=0).remote()
    pid = ray.get(a.pid.remote())
    under_way = a.sleep.remote(60)
    time.sleep(0.3)
    start = clock()
    os.kill(pid, signal.SIGKILL)
    try:
        ray.get(under_way)
    except ray.exceptions.RayError:
        pass
    error = clock() - start
    while True:
        try:
            ray.get(a.noop.remote())
            break
        except ray.exceptions.RayError:
            time.sleep(0.005)
    again = clock() - start
    ray.kill(a)
    return {"error": error * 1e3, "again": again * 1e3}


def idle_process():
    """MiB of private memory of an idle actor."""
    pid = ray.get(actor().pid.remote())
    total = 0
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1])
    return total / 1024


OPERATIONS = {
    f.__name__: f
    for f in (
        actor_sync, actor_async, actor_nn, actor_nn_end, task_sync, task_async, actor_stream, actor_create, echo, object_put,
        object_broadcast, object_end, group_create, fault_kill, idle_process,
    )
}  # fmt: skip


def reply(message):
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def main():
    ray.init(
        num_cpus=max(4, os.cpu_count() or 4),
        resources={"custom": 100},
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=int(sys.argv[1]) if len(sys.argv) > 1 else 3 << 30,
    )
    reply({"value": f"ray {ray.__version__}"})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply({"value": OPERATIONS[request.pop("op")](**request)})
        except Exception as error:  # noqa: BLE001
            reply({"error": f"{type(error).__name__}: {error}"[:500]})
    ray.shutdown()


try:
    main()
finally:
    shutil.rmtree(folder, ignore_errors=True)
