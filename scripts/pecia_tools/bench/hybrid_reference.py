# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of a hybrid's tokens in float64, by NumPy alone. It shares no code with the program. It is for
small models: attention takes time with the square of the length.

The one number that is not of float64 is the angle of a rotation, which models are trained with in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from safetensors import safe_open

from ..command import UserError
from ..model_folder import read_json
from .hybrid_math import (
    ROWS,
    Array,
    attended,
    blocks,
    convolved,
    delta_rule,
    gated,
    rms,
    scanned,
    sigmoid,
    silu,
    softplus,
    unit,
)

FAMILIES = ("qwen3_5_text", "granitemoehybrid")
ATTENDS = ("full_attention", "attention")  # in layer_types


def log_probabilities(folder: Path, tokens: Array, told: Callable[[str], None] = lambda text: None) -> Array:
    """float64 [tokens − 1]: of each token but the first, given those before it. UserError for other families."""
    model = Model(folder)
    states = model.embedded(tokens)
    for layer in range(model.layers):
        told(f"layer {layer + 1} of {model.layers}")
        states = model.after_layer(layer, states)
    found = []
    for rows in blocks(len(tokens) - 1, ROWS):
        logits = model.logits(states[rows])
        logits -= logits.max(axis=1, keepdims=True)
        own = np.take_along_axis(logits, tokens[1:][rows, None], axis=1)[:, 0]
        found.append(own - np.log(np.exp(logits).sum(axis=1)))
    return np.concatenate(found)


class Model:
    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = read_json(folder / "config.json")
        self.family = self.config["model_type"]
        if self.family not in FAMILIES:
            raise UserError(f"{folder}: model_type is '{self.family}'; there is a reference of {', '.join(FAMILIES)}")
        self.is_granite = self.family == "granitemoehybrid"
        if self.is_granite and self.config.get("position_embedding_type") == "rope":
            raise UserError(f"{folder}: position_embedding_type is 'rope', which the reference does not have")
        self.layers, self.eps = self.config["num_hidden_layers"], self.config["rms_norm_eps"]
        self.held: dict[str, Array] = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, "numpy") as opened:
                self.held.update({name: opened.get_tensor(name).astype(np.float64) for name in opened.keys()})  # noqa: SIM118

    def weight(self, name: str) -> Array:
        return self.held[f"model.{name}"]

    def factor(self, name: str) -> float:
        """One of Granite's, which other families do not have."""
        return float(self.config.get(name, 1.0))

    def embedded(self, tokens: Array) -> Array:
        return self.weight("embed_tokens.weight")[tokens] * self.factor("embedding_multiplier")

    def after_layer(self, layer: int, states: Array) -> Array:
        prefix, residual = f"layers.{layer}", self.factor("residual_multiplier")
        attends = self.config["layer_types"][layer] in ATTENDS
        mixer = self.attention if attends else self.mamba_2 if self.is_granite else self.delta_net
        states = states + residual * mixer(prefix, self.normed(states, f"{prefix}.input_layernorm"))
        rows = self.normed(states, f"{prefix}.post_attention_layernorm")
        return states + residual * (self.granite_ffn if self.is_granite else self.ffn)(prefix, rows)

    def logits(self, states: Array) -> Array:
        tied = self.config.get("tie_word_embeddings")
        head = self.weight("embed_tokens.weight") if tied else self.held["lm_head.weight"]
        return self.normed(states, "norm") @ head.T / self.factor("logits_scaling")

    def normed(self, x: Array, name: str) -> Array:
        """Qwen's norms multiply by 1 + the weight."""
        return rms(x, self.eps) * (self.weight(f"{name}.weight") + (0 if self.is_granite else 1))

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weight(f"{name}.weight").T

    # Feed-forwards

    def ffn(self, prefix: str, x: Array) -> Array:
        gate, up = (self.linear(x, f"{prefix}.mlp.{name}_proj") for name in ("gate", "up"))
        return self.linear(silu(gate) * up, f"{prefix}.mlp.down_proj")

    def granite_ffn(self, prefix: str, x: Array) -> Array:
        """A shared feed-forward, and the experts that a row takes, with weights that are a softmax over these."""
        shared, experts = f"{prefix}.shared_mlp", f"{prefix}.block_sparse_moe"
        made = gated(x, self.weight(f"{shared}.input_linear.weight"), self.weight(f"{shared}.output_linear.weight"))
        if not self.config["num_local_experts"]:
            return made
        scores = self.linear(x, f"{experts}.router.layer")
        taken = np.argsort(-scores, axis=1, kind="stable")[:, : self.config["num_experts_per_tok"]]
        best = np.take_along_axis(scores, taken, axis=1)
        shares = np.exp(best - best[:, :1])
        shares /= shares.sum(axis=1, keepdims=True)
        both, down = (self.weight(f"{experts}.{name}_linear.weight") for name in ("input", "output"))
        for expert in range(len(both)):
            rows, place = np.nonzero(taken == expert)
            made[rows] += shares[rows, place, None] * gated(x[rows], both[expert], down[expert])
        return made

    # Mixers

    def attention(self, prefix: str, x: Array) -> Array:
        config, at = self.config, f"{prefix}.self_attn"
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        dim = config.get("head_dim") or config["hidden_size"] // heads
        q, k, v = (self.linear(x, f"{at}.{name}_proj").reshape(len(x), -1, dim) for name in "qkv")
        scale = dim**-0.5
        gate = None
        if self.is_granite:
            scale = config["attention_multiplier"]
        else:
            both = q.reshape(len(x), heads, 2, dim)  # of each head its query, then its gate
            q, gate = both[:, :, 0], both[:, :, 1]
            q, k = (self.turned(self.normed(y, f"{at}.{name}_norm")) for y, name in ((q, "q"), (k, "k")))
        out = np.empty_like(q)
        for head in range(heads):
            at_kv = head * kv_heads // heads
            out[:, head] = attended(q[:, head] * scale, k[:, at_kv], v[:, at_kv])
        if gate is not None:
            out *= sigmoid(gate)
        return self.linear(out.reshape(len(x), -1), f"{at}.o_proj")

    def turned(self, x: Array) -> Array:
        """x [rows, heads, dim] rotated by its row: pairs are halves of the first dimensions."""
        rope = self.config["rope_parameters"]
        rotated = int(x.shape[-1] * rope.get("partial_rotary_factor", 0.25))
        exponents = np.arange(0, rotated, 2) / rotated
        frequencies = (1 / float(rope["rope_theta"]) ** exponents).astype(np.float32)
        angles = (np.arange(len(x), dtype=np.float32)[:, None] * frequencies).astype(np.float64)[:, None]
        a, b, rest = np.split(x, [rotated // 2, rotated], axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    def delta_net(self, prefix: str, x: Array) -> Array:
        config, at = self.config, f"{prefix}.linear_attn"
        key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
        keys = key_heads * config["linear_key_head_dim"]
        mixed = silu(convolved(self.linear(x, f"{at}.in_proj_qkv"), self.weight(f"{at}.conv1d.weight")))
        q, k, v = np.split(mixed, [keys, 2 * keys], axis=1)
        q, k = (unit(y.reshape(len(x), key_heads, -1)).repeat(heads // key_heads, axis=1) for y in (q, k))
        z, b, a = (self.linear(x, f"{at}.in_proj_{name}") for name in "zba")
        decay = np.exp(-np.exp(self.weight(f"{at}.A_log")) * softplus(a + self.weight(f"{at}.dt_bias")))
        values = v.reshape(len(x), heads, -1)
        out = delta_rule(q / np.sqrt(q.shape[-1]), k, values, decay, sigmoid(b))
        out = rms(out, self.eps) * self.weight(f"{at}.norm.weight") * silu(z).reshape(out.shape)
        return self.linear(out.reshape(len(x), -1), f"{at}.out_proj")

    def mamba_2(self, prefix: str, x: Array) -> Array:
        config, at = self.config, f"{prefix}.mamba"
        heads, groups = config["mamba_n_heads"], config["mamba_n_groups"]
        inner, bc = config["mamba_expand"] * config["hidden_size"], groups * config["mamba_d_state"]
        z, mixed, steps = np.split(self.linear(x, f"{at}.in_proj"), [inner, 2 * inner + 2 * bc], axis=1)
        mixed = convolved(mixed, self.weight(f"{at}.conv1d.weight"))
        if config["mamba_conv_bias"]:
            mixed += self.weight(f"{at}.conv1d.bias")
        values, b, c = np.split(silu(mixed), [inner, inner + bc], axis=1)
        b, c = (y.reshape(len(x), groups, -1).repeat(heads // groups, axis=1) for y in (b, c))
        values = values.reshape(len(x), heads, -1)
        steps = softplus(steps + self.weight(f"{at}.dt_bias"))
        decay = np.exp(-np.exp(self.weight(f"{at}.A_log")) * steps)
        out = scanned(values * steps[..., None], b, c, decay) + values * self.weight(f"{at}.D")[:, None]
        out = rms((out.reshape(z.shape) * silu(z)).reshape(len(x), groups, -1), self.eps).reshape(z.shape)
        return self.linear(out * self.weight(f"{at}.norm.weight"), f"{at}.out_proj")
