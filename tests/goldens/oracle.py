# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers as the oracle: float32 on the CPU, eager attention, a KV cache."""

import copy
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from cases import Case, Config

Tensors = dict[str, torch.Tensor]


def makes(case: Case) -> bool:
    """Whether the installed transformers is of the version that makes the case; says so if not."""
    major = int(transformers.__version__.split(".")[0])
    if major != case.transformers:
        print(f"{case.name}: left to transformers {case.transformers}", flush=True)
    return major == case.transformers


def new_model(config: Config) -> PreTrainedModel:
    """A float32 model of the config, its weights not yet set."""
    unused = ("model_type", "torch_dtype", "dtype")  # the last would round what the model computes
    keys = {key: value for key, value in config.items() if key not in unused}
    hf_config = AutoConfig.for_model(
        config["model_type"], **copy.deepcopy(keys)
    )  # it adds to rope_scaling
    if config["model_type"] == "mistral4":  # the automatic class does not know it
        hf_config._attn_implementation = "eager"
        return transformers.Mistral4ForCausalLM(hf_config).float().eval()
    return AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager").float().eval()


def with_weights(config: Config, weights: Tensors) -> PreTrainedModel:
    """The model with weights widened to float32, and not a tensor missing or left over."""
    model = new_model(config)
    widened = {name: tensor.float() for name, tensor in weights.items()}
    if config["tie_word_embeddings"]:
        widened["lm_head.weight"] = widened["model.embed_tokens.weight"]
    model.load_state_dict(widened, strict=True)
    return model


def head_dim_of(config: Config) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.double().log_softmax(-1)


ROUTERS = (".mlp.gate", ".block_sparse_moe.gate", ".mlp.router", ".feed_forward.router", ".router.proj")
ROUTERS += (".block_sparse_moe.router", ".mixer.gate")


def watched_routers(model: PreTrainedModel) -> list[float]:
    """A list that grows while the model runs: for each call of a router the least gap between what
    it compares of the last expert taken and of the first left out, and of groups of experts. It
    stays empty without routers."""
    margins: list[float] = []

    def look(router: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        linear = router if hasattr(router, "weight") else router.gate
        rows = inputs[0].reshape(-1, linear.weight.shape[1])
        keys = torch.nn.functional.linear(rows, linear.weight, getattr(linear, "bias", None))
        bias = getattr(router, "e_score_correction_bias", None)
        bias = inputs[1] if len(inputs) > 1 else bias
        if bias is not None:
            keys = keys.sigmoid() + bias
        groups = getattr(model.config, "n_group", 1)
        if groups > 1:
            best = keys.unflatten(1, (groups, -1)).topk(2).values.sum(-1)
            margins.append(gap(best, model.config.topk_group))
            left_out = best.topk(groups - model.config.topk_group, largest=False).indices
            members = keys.unflatten(1, (groups, -1)).clone()
            members[torch.arange(len(members))[:, None], left_out] = -torch.inf
            keys = members.flatten(1)
        taken = getattr(model.config, "num_experts_per_tok", None) or model.config.top_k_experts
        margins.append(gap(keys, taken))

    def gap(values: torch.Tensor, taken: int) -> float:
        top = values.topk(taken + 1).values
        return (top[:, -2] - top[:, -1]).min().item()

    for name, module in model.named_modules():
        if name.endswith(ROUTERS):
            module.register_forward_pre_hook(look)
    return margins


@torch.no_grad()
def run(model: PreTrainedModel, prompt: list[int], greedy_tokens: int) -> dict[str, Any]:
    """The golden record of one prompt.

    The model must be fresh: with dynamic rope scaling transformers keeps the frequencies of the
    longest sequence it has met. So a prompt has the frequencies of its whole length, each generated
    token those of its position + 1, and cached keys stay as they were rotated.
    """
    router_margins = watched_routers(model)
    out = model(torch.tensor([prompt]), use_cache=True)
    predicted = log_softmax(out.logits[0])
    record: dict[str, Any] = {
        "prompt": prompt,
        "logprobs": predicted[-1].tolist(),
        "prompt_logprobs": [predicted[i, token].item() for i, token in enumerate(prompt[1:])],
    }
    greedy: list[int] = []
    greedy_logprobs: list[float] = []
    margins: list[float] = []
    while True:
        (best, second), (token, _) = (x.tolist() for x in log_softmax(out.logits[0, -1]).topk(2))
        greedy.append(token)
        greedy_logprobs.append(best)
        margins.append(best - second)
        if len(greedy) == greedy_tokens:
            break
        out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
    record |= {
        "greedy": greedy,
        "greedy_logprobs": greedy_logprobs,
        "greedy_margin": min(margins),
    }
    return record | ({"router_margin": min(router_margins)} if router_margins else {})
