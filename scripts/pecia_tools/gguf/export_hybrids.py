# SPDX-License-Identifier: Apache-2.0
"""What GGUF files hold of states, whichever recurrence makes them."""

from __future__ import annotations

import numpy as np
from gguf import GGUFWriter

from .export_parts import ATTENTION, Config, Values

ATTENDING = {part: ATTENTION[part] for part in ("attn_q", "attn_k", "attn_v", "attn_output")}
FULL = ("full_attention", "attention")  # in layer_types


def squeezed(conv: Values) -> Values:
    """[channels, 1, rows] as [channels, rows]."""
    return conv[:, 0]


def rate(a_log: Values) -> Values:
    return -np.exp(a_log)


def attends(config: Config, layer: int) -> bool:
    """Not in a model without layer_types."""
    kinds = config.get("layer_types") or [""] * config["num_hidden_layers"]
    return kinds[layer] in FULL


def describe_state(writer: GGUFWriter, conv: int, heads: int, inner: int, state: int, groups: int) -> None:
    writer.add_ssm_conv_kernel(conv)
    writer.add_ssm_time_step_rank(heads)  # so llama.cpp calls their number
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
