"""torch's and transformers' side of the suite `engine`. Usage: engine_rows.py THREADS

A line of JSON in, {"op": name, ...arguments}; a line of JSON out, {"value": seconds} or {"error": text}. Ends with its input.
"""
import gc
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(0)
models = {}
trained = {}
inputs = {}


def timed(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def model_of(folder):
    if folder not in models:
        attention = "eager" if "gpt_oss" in open(f"{folder}/config.json").read() else "sdpa"
        models[folder] = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
        models[folder].generation_config.pad_token_id = 0
    return models[folder]


def ids_of(rows, count, vocabulary):
    """Row r: the ids of shapes.ts with seed r."""
    i = torch.arange(count)
    return torch.stack([10 + (7919 * i + 131 * seed) % (vocabulary - 10) for seed in range(rows)])


def gemm(size):
    if size not in inputs:
        inputs[size] = [torch.randn(size, size) for _ in range(2)] + [torch.empty(size, size)]
    a, b, c = inputs[size]
    return timed(lambda: torch.mm(a, b.t(), out=c))


def prefill(folder, sequences, prompt, vocabulary, **_):
    model, ids = model_of(folder), ids_of(sequences, prompt, vocabulary)
    with torch.inference_mode():
        return timed(lambda: model(ids, use_cache=True, logits_to_keep=1))


def generate(folder, sequences, prompt, tokens, vocabulary):
    model, ids = model_of(folder), ids_of(sequences, prompt, vocabulary)
    mask = torch.ones_like(ids)

    def run():
        out = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None)
        assert out.shape[1] == prompt + tokens

    with torch.inference_mode():
        return timed(run)


def train(folder, segments, length, vocabulary, compiled):
    """Forward with the loss of every next token, backward, AdamW; torch's fused one."""
    key = (folder, compiled)
    if key not in trained:
        trained.clear()
        models.clear()
        gc.collect()
        model = model_of(folder)
        models.clear()
        model.train()
        ids = ids_of(segments, length, vocabulary)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

        def loss_of(ids):
            logits = model(ids, use_cache=False).logits
            return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

        loss_function = torch.compile(loss_of) if compiled else loss_of

        def step():
            loss_function(ids).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        trained[key] = step
    return timed(trained[key])


def attention(kind, n, heads, kv_heads, depth, window):
    """Seconds of processor time of one forward and backward with float32, q - k <= window (below 0: all)."""
    key = (kind, n, window)
    if key not in inputs:
        inputs.clear()
        gc.collect()
        make = lambda h: torch.randn(1, h, n, depth, requires_grad=True)  # noqa: E731
        q, k, v, out = make(heads), make(kv_heads), make(kv_heads), torch.randn(1, heads, n, depth)
        sink = torch.randn(heads, requires_grad=True)
        distance = torch.arange(n)[:, None] - torch.arange(n)[None, :] if kind == "eager" or window >= 0 else None
        visible = None if distance is None else (distance >= 0) & ((distance <= window) if window >= 0 else True)
        bias = None if visible is None else torch.zeros(n, n).masked_fill(~visible, float("-inf"))
        group = heads // kv_heads

        def eager():
            kk, vv = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            scores = torch.matmul(q, kk.transpose(2, 3)) * depth**-0.5 + bias
            scores = torch.cat([scores, sink.reshape(1, -1, 1, 1).expand(1, -1, n, 1)], -1)
            scores = scores - scores.max(-1, keepdim=True).values
            return torch.matmul(F.softmax(scores, dim=-1)[..., :-1], vv)

        def sdpa():
            mask = None if window < 0 else visible
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=window < 0, enable_gqa=True)

        def step():
            for x in (q, k, v, sink):
                x.grad = None
            (eager if kind == "eager" else sdpa)().backward(out)

        inputs[key] = step
    start = time.process_time()
    inputs[key]()
    return time.process_time() - start


OPERATIONS = {f.__name__: f for f in (gemm, prefill, generate, train, attention)}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(reply):
        print(json.dumps(reply), file=answers, flush=True)

    answer({"value": "torch"})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer({"value": OPERATIONS[request.pop("op")](**request)})
        except Exception as error:  # noqa: BLE001
            answer({"error": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main()
