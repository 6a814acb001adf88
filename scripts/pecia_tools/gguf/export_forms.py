# SPDX-License-Identifier: Apache-2.0
"""The families that llama.cpp is measured with: the form of each, and what a GGUF file could not say of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Union

from gguf import GGUFWriter

from ..command import UserError
from . import export_delta_net as delta_net
from . import export_mamba as mamba
from . import export_parts as parts
from .export_parts import Config, Part, top_names, weights_of

OfLayers = Union[int, list[int]]  # of all layers, or of each


@dataclass(frozen=True)
class Form:
    architecture: str  # as llama.cpp calls it
    layer: Callable[[Config, int], Iterator[Part]]  # names without "blk.N." and `layers`.N.
    describe: Callable[[GGUFWriter, Config], None] = lambda writer, config: None
    problem: Callable[[Config], str] = lambda config: ""  # why not, or ""
    top: Callable[[Config], Iterator[Part]] = lambda config: weights_of(top_names(config))  # tensors outside layers
    kv_heads: Callable[[Config], OfLayers] = parts.kv_heads
    ffn: Callable[[Config], OfLayers] = lambda config: config["intermediate_size"]
    adapted: Callable[[Config], Config] = lambda config: config  # in the keys of most families
    layers: str = "model.layers"


FORMS = {
    "llama": Form("llama", parts.plain_layer),
    "qwen3_moe": Form("qwen3moe", parts.mixture_layer, parts.describe_mixture, parts.problem_of_mixture),
    "glm4_moe": Form("glm4moe", parts.sigmoid_layer, parts.describe_shared, parts.problem_of_shared),
    "deepseek_v3": Form("deepseek2", parts.latent_layer, parts.describe_latents, parts.problem_of_shared),
    "mistral4": Form("mistral4", parts.latent_layer, parts.describe_latents, parts.problem_of_shared),
    "qwen3_5_text": Form(
        "qwen35",
        delta_net.qwen_layer,
        delta_net.describe_delta_net,
        delta_net.problem_of_delta_net,
        delta_net.delta_net_top,
        adapted=delta_net.delta_net_config,
    ),
    "qwen3_next": Form(
        "qwen3next",
        delta_net.next_layer,
        delta_net.describe_delta_net,
        delta_net.problem_of_delta_net,
        delta_net.delta_net_top,
        adapted=delta_net.delta_net_config,
    ),
    "granitemoehybrid": Form(
        "granitehybrid",
        mamba.granite_layer,
        mamba.describe_granite,
        mamba.problem_of_granite,
        kv_heads=mamba.granite_kv_heads,
        ffn=mamba.granite_ffn,
    ),
    "nemotron_h": Form(
        "nemotron_h",
        mamba.nemotron_layer,
        mamba.describe_nemotron,
        mamba.problem_of_nemotron,
        mamba.nemotron_top,
        mamba.nemotron_kv_heads,
        mamba.nemotron_ffn,
        mamba.nemotron_config,
        "backbone.layers",
    ),
}  # by model_type
NEMOTRON_WITH_EXPERTS = replace(FORMS["nemotron_h"], architecture="nemotron_h_moe")


def form_of(config: Config) -> Form:
    if config["model_type"] == "nemotron_h" and "E" in mamba.nemotron_pattern(config):
        return NEMOTRON_WITH_EXPERTS
    return FORMS[config["model_type"]]


def parts_of(form: Form, config: Config) -> Iterator[Part]:
    """All tensors of the file."""
    yield from form.top(config)
    for layer in range(config["num_hidden_layers"]):
        for part in form.layer(config, layer):
            sources = [f"{form.layers}.{layer}.{source}" for source in part.sources]
            yield Part(f"blk.{layer}.{part.name}", sources, part.make, part.is_stack)


def unsupported(config: Config) -> str:
    """Why the file could not say it, or ""."""
    model_type = config.get("model_type")
    if model_type not in FORMS:
        return f"model_type is '{model_type}'"
    scaling = config.get("rope_scaling") or {}
    if model_type != "mistral4":  # the one whose scaling a file can say
        scaling = scaling or config.get("rope_parameters") or {}
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        return f"rope_scaling is {scaling}"
    for key in ("mlp_bias",) if model_type == "glm4_moe" else ("attention_bias", "mlp_bias"):
        if config.get(key):
            return f"{key} is true"
    form = form_of(config)
    return form.problem(form.adapted(config))


def check_supported(config: Config, where: object) -> None:
    problem = unsupported(config)
    if problem:
        raise UserError(f"{where}: {problem}; GGUF files are made of {', '.join(FORMS)}")
