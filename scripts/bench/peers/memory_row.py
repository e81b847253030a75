"""One cell of the suite `memory`: a training step of transformers' gpt_oss model. Usage: memory_row.py FOLDER TOKENS THREADS PARTS

PARTS: none (eager as it is), or some of these joined by +, each taking one reason for memory away from eager:
  fusion         attention by torch's fused CPU kernel with the sink folded in, forward and backward: no scores are kept
  mask-metadata  masks are told by window and causality: none is stored, and blocks of keys that nobody sees are left out
  chunked-loss   the head and the loss by 384 tokens, computed again in the backward
  checkpointing  layers keep their inputs alone
Prints one line of JSON: {"peak": bytes, "seconds": s, "cpuSeconds": s, "loss": x} or {"memory": text} where memory ran out.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

CHUNK = 384
BLOCK = 512
NAMES = {"fusion", "mask-metadata", "chunked-loss", "checkpointing"}
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM")


class FusedSink(torch.autograd.Function):
    """out = sigmoid(lse - sink) * softmax(scores) v: the fused kernel's output, scaled; its backward, told of the larger lse."""

    @staticmethod
    def forward(ctx, q, k, v, sink, mask, scale):
        out, lse = flash(q, k, v, 0.0, mask is None, attn_mask=mask, scale=scale)
        whole = torch.logaddexp(lse, sink.view(1, -1, 1))
        out = out * torch.exp(lse - whole).unsqueeze(-1)
        ctx.save_for_backward(q, k, v, sink, out, whole)
        ctx.mask, ctx.scale = mask, scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, sink, out, whole = ctx.saved_tensors
        dq, dk, dv = flash_backward(
            dout, q, k, v, out, whole, 0.0, ctx.mask is None, attn_mask=ctx.mask, scale=ctx.scale
        )
        share = torch.exp(sink.view(1, -1, 1) - whole)
        dsink = -(share * (dout * out).sum(-1)).sum((0, 2))
        return dq, dk, dv, dsink, None, None


def plain(q, k, v, sink, scale, hidden):
    """Scores of one block; `hidden` [queries, keys] is True where a key is not seen."""
    scores = (q @ k.transpose(-2, -1) * scale).masked_fill(hidden, float("-inf"))
    column = sink.view(1, -1, *[1] * (scores.dim() - 2)).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1] @ v


def windowed(q, k, v, sink, scale, window):
    """Blocks of `window` queries, each with its own keys and the block before: nothing else can be seen."""
    n, d = q.shape[-2:]
    pad = -n % window
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, window)) for x in (q, k, v))
    k, v = (torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], dim=3) for x in (k, v))
    row = torch.arange(window).view(-1, 1)
    column = torch.arange(-window, window).view(1, -1)
    hidden = ((column > row) | (row - column >= window)).expand(q.shape[2], window, 2 * window)
    first = (torch.arange(q.shape[2]) == 0).view(-1, 1, 1) & (column < 0)
    sink = sink.view(-1, 1)
    return plain(q, k, v, sink, scale, hidden | first).flatten(2, 3)[:, :, :n]


def attention_of(parts):
    fused, metadata = "fusion" in parts, "mask-metadata" in parts

    def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, sliding_window=None, **_):
        groups, n = module.num_key_value_groups, query.shape[2]
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        sink = module.sinks
        if metadata and sliding_window is not None and sliding_window < n:
            out = windowed(query, key, value, sink, scaling, sliding_window)
        elif fused:
            out = FusedSink.apply(query, key, value, sink, None if metadata else attention_mask, scaling)
        else:
            pieces = []
            for at in range(0, n, BLOCK):
                to = min(n, at + BLOCK)
                hidden = torch.ones(to - at, to, dtype=torch.bool).triu(at + 1)
                pieces.append(plain(query[:, :, at:to], key[:, :, :to], value[:, :, :to], sink, scaling, hidden))
            out = torch.cat(pieces, dim=2)
        return out.transpose(1, 2).contiguous(), None

    return attention


def main():
    folder, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    parts = set() if sys.argv[4] == "none" else set(sys.argv[4].split("+"))
    if not parts <= NAMES:
        raise SystemExit(f"unknown parts: {', '.join(sorted(parts - NAMES))}")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    implementation = "eager"
    if parts & {"fusion", "mask-metadata"}:
        implementation = "parts"
        ALL_ATTENTION_FUNCTIONS.register(implementation, attention_of(parts))
        if "mask-metadata" not in parts:
            ALL_MASK_ATTENTION_FUNCTIONS.register(implementation, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=implementation).train()
    if "checkpointing" in parts:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    vocabulary = model.config.vocab_size
    ids = (10 + (7919 * torch.arange(tokens)) % (vocabulary - 10)).unsqueeze(0)

    def loss_sum(hidden, targets):
        return F.cross_entropy(model.lm_head(hidden), targets, reduction="sum")

    def loss_of():
        if "chunked-loss" not in parts:
            logits = model(ids, use_cache=False).logits
            return F.cross_entropy(logits[0, :-1], ids[0, 1:])
        hidden, targets = model.model(ids, use_cache=False).last_hidden_state[0, :-1], ids[0, 1:]
        pieces = zip(hidden.split(CHUNK), targets.split(CHUNK))
        return sum(checkpoint(loss_sum, h, y, use_reentrant=False) for h, y in pieces) / (tokens - 1)

    start, cpu = time.perf_counter(), time.process_time()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    seconds = time.perf_counter() - start
    print(json.dumps({"peak": peak(), "seconds": seconds, "cpuSeconds": time.process_time() - cpu, "loss": loss.item()}))


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, MemoryError) as error:
        if "allocate memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        print(json.dumps({"memory": str(error)[:300]}))
