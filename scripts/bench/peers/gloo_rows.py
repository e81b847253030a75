"""Gloo's side of the rows collective.*: as many processes as the first argument says, a torch.distributed group over loopback.

A line of JSON in, {"op": "all_reduce", "size": bytes, "n": times}; a line of JSON out, {"value": milliseconds} (median, seen by rank 0) or
{"error": text}. Ends with its input.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402


def all_reduce(size, n):
    x = torch.ones(size // 4)
    samples = []
    for _ in range(n + 2):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        samples.append(time.perf_counter() - start)
        x.fill_(1)
    return statistics.median(samples[2:]) * 1e3


def serve(rank, members, meeting, ask, answer):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=members)
    answer("gloo")
    while True:
        request = [ask()]
        dist.broadcast_object_list(request, src=0)
        if request[0] is None:
            return
        answer(all_reduce(request[0]["size"], request[0]["n"]))


def other(index, members, meeting):
    serve(index + 1, members, meeting, lambda: None, lambda _: None)


def main():
    members = int(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="sfx-gloo-")
    meeting = os.path.join(folder, "meeting")
    others = mp.spawn(other, args=(members, meeting), nprocs=members - 1, join=False)

    def ask():
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def answer(value):
        print(json.dumps({"value": value}), flush=True)

    try:
        serve(0, members, meeting, ask, answer)
        others.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
