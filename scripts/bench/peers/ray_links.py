"""Ray's side of the suite `links`: two nodes on this machine, an actor on each. Lines of JSON in and out, as ray_rows.py."""
import json
import os
import shutil
import sys
import tempfile
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
folder = tempfile.mkdtemp(prefix="sfx-ray-", dir="/tmp")
os.environ["RAY_TMPDIR"] = folder
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Ray prints must not mix with answers

import numpy as np  # noqa: E402
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

clock = time.perf_counter


@ray.remote(num_cpus=0)
class End:
    def __init__(self):
        self.kept = None

    def noop(self):
        return b"ok"

    def calls(self, other, n):
        """Microseconds of a call to the other, median."""
        samples = []
        for _ in range(n):
            start = clock()
            ray.get(other.noop.remote())
            samples.append(clock() - start)
        return sorted(samples)[n // 2] * 1e6

    def flood(self, other, n):
        start = clock()
        ray.get([other.noop.remote() for _ in range(n)])
        return n / (clock() - start)

    def keep(self, size):
        self.kept = None
        self.kept = ray.put(np.ones(size, dtype=np.uint8))
        return [self.kept]

    def last(self, value):
        return int(value[-1])


def reply(message):
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def main():
    store = 3 << 30
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"a": 1}, "object_store_memory": store})
    cluster.add_node(num_cpus=2, resources={"b": 1}, object_store_memory=store)
    ray.init(address=cluster.address, log_to_driver=False)
    a = End.options(resources={"a": 0.1}).remote()
    b = End.options(resources={"b": 0.1}).remote()
    ray.get([a.calls.remote(b, 50), b.noop.remote()])

    def op_object(size):
        """GB/s until the other has seen the last byte of a value that one has."""
        (ref,) = ray.get(a.keep.remote(size))
        start = clock()
        assert ray.get(b.last.remote(ref)) == 1
        took = clock() - start
        del ref
        time.sleep(0.3)
        return size / took / 1e9

    operations = {
        "call_sync": lambda n: ray.get(a.calls.remote(b, n)),
        "call_async": lambda n: ray.get(a.flood.remote(b, n)),
        "object": op_object,
    }
    reply({"value": f"ray {ray.__version__}, two nodes"})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply({"value": operations[request.pop("op")](**request)})
        except Exception as error:  # noqa: BLE001
            reply({"error": f"{type(error).__name__}: {error}"[:500]})
    ray.shutdown()
    cluster.shutdown()


try:
    main()
finally:
    shutil.rmtree(folder, ignore_errors=True)
