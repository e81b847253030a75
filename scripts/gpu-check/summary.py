"""The two halves of the table side by side: `summary.py OURS TORCH`. A row a shape; ours against FlexAttention and eager as
times (above 1: ours is faster) and memory (below 1: ours takes less). What is missing is a dash."""

import json
import sys


def rows(path):
    found = {}
    for line in open(path):
        if line.startswith("{"):
            row = json.loads(line)
            found[row["of"], row.get("step"), row.get("n"), row.get("window")] = row
    return found


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


ours, torch = rows(sys.argv[1]), rows(sys.argv[2])
print("tokens | window | forward: flex, eager | both: flex, eager | memory of both: flex, eager")
for (_, step, n, window), mine in ours.items():
    peers = [torch.get((name, step, n, window), {}) for name in ("flex", "eager")]
    cells = [", ".join(ratio(peer.get(key), mine.get(key)) for peer in peers) for key in ("forward_ms", "both_ms")]
    memory = ", ".join(ratio(mine.get("both_mib"), peer.get("both_mib")) for peer in peers)
    what = f"{n} | {'full' if window < 0 else window}" if n else f"{step} | step"
    print(" | ".join([what, *cells, memory]))
