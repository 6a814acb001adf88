# SPDX-License-Identifier: Apache-2.0
"""Experts that transformers 5 holds in one tensor, and checkpoints store one by one.

    model.layers.0.mlp.experts.gate_up_proj [experts, 2 ffn, hidden]     gate above up
    model.layers.0.mlp.experts.down_proj    [experts, hidden, ffn]
"""

import torch

from cases import Config

Tensors = dict[str, torch.Tensor]
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
UNGATED = "mixer.experts."  # up_proj and down_proj of Nemotron-H
FILES = ("mlp.", "gate_proj.weight", "up_proj.weight", "down_proj.weight")
MINIMAX = ("block_sparse_moe.", "w1.weight", "w3.weight", "w2.weight")


def has_fused(config: Config) -> bool:
    families = ("glm4_moe", "minimax_m2", "afmoe", "deepseek_v3", "glm4_moe_lite", "qwen2_moe")
    return config["model_type"] in (*families, "qwen3_next", "nemotron_h")


def names_of(config: Config) -> tuple[str, str, str, str]:
    return MINIMAX if config["model_type"] == "minimax_m2" else FILES


def drafts(config: Config) -> Tensors:
    """A tensor of a layer after the last one, as files with layers for drafts have it."""
    if config["model_type"] == "qwen3_next":
        return {"mtp.fc.weight": torch.ones(8, 8)}
    if not config.get("num_nextn_predict_layers"):
        return {}
    return {f"model.layers.{config['num_hidden_layers']}.eh_proj.weight": torch.ones(8, 8)}


def pack(weights: Tensors, config: Config) -> Tensors:
    """Under the names of a checkpoint, from those of transformers."""
    block, gate, up, down = names_of(config)
    stored = drafts(config)
    for name, tensor in weights.items():
        prefix = name.split("mlp.")[0]
        if name.endswith(GATE_UP):
            for expert, both in enumerate(tensor):
                gates, ups = both.chunk(2)
                stored[f"{prefix}{block}experts.{expert}.{gate}"] = gates.contiguous()
                stored[f"{prefix}{block}experts.{expert}.{up}"] = ups.contiguous()
        elif name.endswith(DOWN):
            for expert, of_expert in enumerate(tensor):
                stored[f"{prefix}{block}experts.{expert}.{down}"] = of_expert.contiguous()
        elif UNGATED in name:
            layer, kind = name.rsplit(".", 1)
            for expert, of_expert in enumerate(tensor):
                stored[f"{layer}.{expert}.{kind}.weight"] = of_expert.contiguous()
        else:
            stored[name.replace(".mlp.", f".{block}")] = tensor
    return stored


def unpack(stored: Tensors, config: Config) -> Tensors:
    """The reverse."""
    block, gate, up, down = names_of(config)
    weights: Tensors = {}
    fused: dict[str, list[torch.Tensor]] = {}
    ignored = drafts(config)
    experts = config.get("n_routed_experts", config.get("num_local_experts"))
    experts = experts or config["num_experts"]
    for name, tensor in stored.items():
        if UNGATED in name:
            layer, _, kind, _ = name.rsplit(".", 3)
            fused.setdefault(f"{layer}.{kind}", []).append(tensor)
            continue
        if f"{block}experts.0." not in name:
            if f"{block}experts." not in name and name not in ignored:
                weights[name.replace(f".{block}", ".mlp.")] = tensor
            continue
        prefix = name.split(block)[0]

        def all_of(kind: str, prefix: str = prefix) -> list[torch.Tensor]:
            return [stored[f"{prefix}{block}experts.{e}.{kind}"] for e in range(experts)]

        pairs = zip(all_of(gate), all_of(up), strict=True)
        fused[f"{prefix}{GATE_UP}"] = [torch.cat(pair) for pair in pairs]
        fused[f"{prefix}{DOWN}"] = all_of(down)
    return weights | {name: torch.stack(tensors) for name, tensors in fused.items()}
