"""The other half of the table: PyTorch's FlexAttention compiled, with the sink, and eager sink attention, in bf16, over the
shapes of `driver bench`. A JSON line a row, printed as it comes; what does not fit or run is a row that says so."""

import json
import statistics
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError as error:
    raise SystemExit(json.dumps({"of": "torch", "error": str(error)}))

HEADS, KEY_HEADS, DEPTH, SCALE = 64, 8, 64, 0.125
BUDGET_SECONDS = 100
started = time.monotonic()
compiled = torch.compile(flex_attention)


def flex(q, k, v, sink, window, blocks):
    out, lse = compiled(q, k, v, block_mask=blocks, scale=SCALE, enable_gqa=True, return_lse=True)
    return out * torch.sigmoid(lse - sink[None, :, None]).unsqueeze(-1).to(out.dtype)


def eager(q, k, v, sink, window, blocks):
    group = HEADS // KEY_HEADS
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    n = q.shape[2]
    at = torch.arange(n, device=q.device)
    seen = at[:, None] >= at[None, :]
    if window >= 0:
        seen &= at[:, None] - at[None, :] <= window
    scores = (q @ k.transpose(2, 3) * SCALE).masked_fill(~seen, float("-inf"))
    scores = torch.cat([scores, sink[None, :, None, None].expand(1, HEADS, n, 1).to(scores.dtype)], -1)
    return F.softmax(scores, -1, dtype=torch.float32).to(q.dtype)[..., :-1] @ v


def measure(work):
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    begin = time.monotonic()
    while len(times) < 10 and (len(times) < 3 or time.monotonic() - begin < 1):
        start = time.monotonic()
        work()
        torch.cuda.synchronize()
        times.append(time.monotonic() - start)
    return statistics.median(times) * 1e3, (torch.cuda.max_memory_allocated() - before) / 2**20


for n in [1024 * 2**i for i in range(6)]:
    for window in [-1, 127]:

        def mask(b, h, i, j):
            near = i >= j
            return near & (i - j <= window) if window >= 0 else near

        for name, attention in [("flex", flex), ("eager", eager)]:
            row = {"of": name, "n": n, "window": window}
            if time.monotonic() - started > BUDGET_SECONDS:
                row["error"] = "no time left"
                print(json.dumps(row), flush=True)
                continue
            try:
                make = lambda heads: torch.randn(1, heads, n, DEPTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                q, k, v = make(HEADS), make(KEY_HEADS), make(KEY_HEADS)
                sink = torch.zeros(HEADS, device="cuda", requires_grad=True)
                dout = torch.randn(1, HEADS, n, DEPTH, device="cuda", dtype=torch.bfloat16)
                blocks = create_block_mask(mask, None, None, n, n, device="cuda") if name == "flex" else None
                with torch.no_grad():
                    row["forward_ms"], row["forward_mib"] = measure(lambda: attention(q, k, v, sink, window, blocks))

                def both():
                    torch.autograd.grad(attention(q, k, v, sink, window, blocks), [q, k, v, sink], dout)

                row["both_ms"], row["both_mib"] = measure(both)
            except Exception as error:  # a row that says why is worth more than no table
                row["error"] = str(error).splitlines()[0][:200]
                torch.cuda.empty_cache()
            print(json.dumps(row), flush=True)
