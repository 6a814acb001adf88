# SPDX-License-Identifier: Apache-2.0
"""gpt-oss stores its experts in MXFP4: blocks of 32 inputs that share a scale, a power of two."""

import torch

from oracle import Tensors

VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
BLOCK = 32
PACKED = (".experts.gate_up_proj", ".experts.down_proj")


def pack(weights: Tensors) -> Tensors:
    """As a checkpoint has them. Experts' matrices are [experts, inputs, outputs]."""
    stored: Tensors = {}
    for name, tensor in weights.items():
        if not name.endswith(PACKED):
            stored[name] = tensor
            continue
        blocks = tensor.float().transpose(1, 2).unflatten(2, (-1, BLOCK))
        # The largest number of a block becomes 4 or 6 at the least.
        exponents = (blocks.abs().amax(-1).clamp(min=2.0**-100).log2() - 2).floor()
        exact = blocks / 2.0 ** exponents[..., None]
        codes = (exact[..., None] - VALUES).abs().argmin(-1).to(torch.uint8)
        codes[(codes == 0) & (exact < 0)] = 8
        stored[f"{name}_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
        stored[f"{name}_scales"] = (exponents + 127).to(torch.uint8)
    return stored


def unpack(stored: Tensors) -> Tensors:
    """Under transformers' names, in bfloat16, which holds every number exactly."""
    weights: Tensors = {}
    for name, tensor in stored.items():
        if name.endswith("_scales"):
            continue
        if not name.endswith("_blocks"):
            weights[name] = tensor
            continue
        name = name.removesuffix("_blocks")
        pairs = torch.stack([tensor & 15, tensor >> 4], -1).flatten(-2)
        exponents = stored[f"{name}_scales"].float() - 127
        numbers = VALUES[pairs.long()] * 2.0 ** exponents[..., None]
        weights[name] = numbers.flatten(2).transpose(1, 2).contiguous().to(torch.bfloat16)
    return weights
