"""One cell of the suite `memory`: a training step of transformers' eager model. Usage: memory_row.py FOLDER TOKENS THREADS PART

PART: none, checkpointing, chunked-loss, or both joined by +: what is added to eager. Prints one line of JSON: {"peak": bytes, "seconds": s, "cpuSeconds":
s, "loss": x} or {"memory": text} where memory ran out.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
from transformers.utils import logging

CHUNK = 384


def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM")


def main():
    folder, tokens, threads, part = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    if "checkpointing" in part:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    vocabulary = model.config.vocab_size
    ids = (10 + (7919 * torch.arange(tokens)) % (vocabulary - 10)).unsqueeze(0)

    def loss_sum(hidden, targets):
        return F.cross_entropy(model.lm_head(hidden), targets, reduction="sum")

    def loss_of():
        if "chunked-loss" not in part:
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
