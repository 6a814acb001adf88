# SPDX-License-Identifier: Apache-2.0
"""Times products and cuDNN's causal attention as PyTorch calls them: JSON lines like those of pecia-bench ops.

The floor is a product of 8192³ in bf16, measured here first.
"""

import json
import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 8, 128
LENGTHS = (8192, 32768, 131072)
SHAPES = ((8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (1, 14336, 4096), (16, 14336, 4096))
RUNS = 7


def sorted_seconds(action):
    """Seconds of each run, as events of the GPU see them, after one warm-up."""
    action()
    seconds = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        action()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return sorted(seconds)


def random(*shape):
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def measure_product():
    """FLOP/s."""
    x, weight = random(8192, 8192), random(8192, 8192)
    return 2 * 8192**3 / sorted_seconds(lambda: x @ weight)[0]


def measure_linear(rows, out, depth, product_flops):
    x, weight = random(rows, depth), random(out, depth)
    seconds = sorted_seconds(lambda: torch.nn.functional.linear(x, weight))
    median = seconds[len(seconds) // 2]
    flops = 2 * rows * out * depth
    return {
        "op": "linear (torch)",
        "shape": f"{rows} rows × {out}×{depth} bf16, Llama-3.1-8B",
        "median_s": median,
        "best_s": seconds[0],
        "flops": flops,
        "share_of_floor": flops / product_flops / median,
        "torch": torch.__version__,
    }


def measure_attention(length, product_flops):
    q = random(1, NUM_HEADS, length, HEAD_DIM)
    k, v = (random(1, NUM_KV_HEADS, length, HEAD_DIM) for _ in range(2))

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )

    with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        seconds = sorted_seconds(attend)
    median = seconds[len(seconds) // 2]
    flops = 4 * math.comb(length + 1, 2) * NUM_HEADS * HEAD_DIM
    return {
        "op": "attention (torch)",
        "shape": f"{length} queries, {length} keys, "
        f"{NUM_HEADS}/{NUM_KV_HEADS} heads of {HEAD_DIM} bf16",
        "median_s": median,
        "best_s": seconds[0],
        "flops": flops,
        "share_of_floor": flops / product_flops / median,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }


def main():
    product_flops = measure_product()
    for shape in SHAPES:
        print(json.dumps(measure_linear(*shape, product_flops)), flush=True)
    for length in LENGTHS:
        print(json.dumps(measure_attention(length, product_flops)), flush=True)


if __name__ == "__main__":
    main()
