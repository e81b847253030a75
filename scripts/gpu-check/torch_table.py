"""The other half of the table: PyTorch's FlexAttention compiled, with the sink, and eager sink attention, in bf16, over the
shapes of `driver bench` and, eager alone, `driver step`. A JSON line a row, printed as it comes; what does not fit or run is
a row that says so. `tiny`: small shapes on the CPU, to try this file; memory is not measured there."""

import json
import statistics
import sys
import time

try:
    import torch
    import torch._dynamo
    import torch.nn.functional as F
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError as error:
    raise SystemExit(json.dumps({"of": "torch", "error": str(error)}))

HEADS, KEY_HEADS, DEPTH, SCALE, HIDDEN = 64, 8, 64, 0.125, 2880
TINY = "tiny" in sys.argv
DEVICE = "cpu" if TINY else "cuda"
MOST, STEP, VOCABULARY = (64, 16, 128) if TINY else (32768, 8192, 201088)
BUDGET_SECONDS = 100
if not TINY and not torch.cuda.is_available():
    raise SystemExit(json.dumps({"of": "torch", "error": "this PyTorch sees no GPU"}))
started = time.monotonic()
# A variant a window and mode, with sizes dynamic from the second on; past the limit it would run uncompiled.
for limit in ("recompile_limit", "cache_size_limit"):
    if hasattr(torch._dynamo.config, limit):
        setattr(torch._dynamo.config, limit, 64)
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


def synchronize():
    if not TINY:
        torch.cuda.synchronize()


def measure(work):
    for _ in range(2):
        work()
    synchronize()
    before = 0 if TINY else torch.cuda.memory_allocated()
    if not TINY:
        torch.cuda.reset_peak_memory_stats()
    times = []
    begin = time.monotonic()
    while len(times) < 10 and (len(times) < 3 or time.monotonic() - begin < 1):
        start = time.monotonic()
        work()
        synchronize()
        times.append(time.monotonic() - start)
    return statistics.median(times) * 1e3, None if TINY else (torch.cuda.max_memory_allocated() - before) / 2**20


def print_row(row, fill):
    """Fills a row and prints it; one that cannot be says why, which is worth more than no table."""
    try:
        if time.monotonic() - started > BUDGET_SECONDS:
            raise TimeoutError("no time left")
        fill(row)
    except Exception as error:
        row["error"] = (str(error).splitlines() or [type(error).__name__])[0][:200]
        if not TINY:
            torch.cuda.empty_cache()
    print(json.dumps(row), flush=True)


def make(heads, n, grad=True):
    return torch.randn(1, heads, n, DEPTH, device=DEVICE, dtype=torch.bfloat16, requires_grad=grad)


def sizes(most):
    return [n for n in (1024 * 2**i for i in range(6)) if n <= most] or [most]


def attention_row(name, attention, n, window):
    def mask(b, h, i, j):
        near = i >= j
        return near & (i - j <= window) if window >= 0 else near

    def fill(row):
        q, k, v, dout = make(HEADS, n), make(KEY_HEADS, n), make(KEY_HEADS, n), make(HEADS, n, False)
        sink = torch.zeros(HEADS, device=DEVICE, requires_grad=True)
        blocks = create_block_mask(mask, None, None, n, n, device=DEVICE) if name == "flex" else None
        with torch.no_grad():
            row["forward_ms"], row["forward_mib"] = measure(lambda: attention(q, k, v, sink, window, blocks))

        def both():
            torch.autograd.grad(attention(q, k, v, sink, window, blocks), [q, k, v, sink], dout)

        row["both_ms"], row["both_mib"] = measure(both)

    print_row({"of": name, "n": n, "window": window}, fill)


def step_row(n):
    """One layer's attention and the head with whole logits, forward and backward."""

    def fill(row):
        q, k, v, dout = make(HEADS, n), make(KEY_HEADS, n), make(KEY_HEADS, n), make(HEADS, n, False)
        sink = torch.zeros(HEADS, device=DEVICE, requires_grad=True)
        hidden = torch.randn(n, HIDDEN, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        w = torch.randn(VOCABULARY, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
        target = torch.arange(n, device=DEVICE) * 7919 % VOCABULARY

        def both():
            out = eager(q, k, v, sink, -1, None)
            loss = F.cross_entropy((hidden @ w.T).float(), target, reduction="sum")
            torch.autograd.grad([out, loss], [q, k, v, sink, hidden], [dout, torch.ones_like(loss)])

        row["both_ms"], row["both_mib"] = measure(both)

    print_row({"of": "eager", "step": n}, fill)


for n in sizes(STEP):
    step_row(n)
for n in sizes(MOST):
    for window in [-1, 127]:
        for name, attention in [("flex", flex), ("eager", eager)]:
            attention_row(name, attention, n, window)
