# SPDX-License-Identifier: Apache-2.0
"""What `make_goldens.py --verify` checks, without writing anything.

1. The oracle still gives the committed goldens for the committed checkpoints.
2. One pass over prompt and continuation without a cache gives the greedy log-probabilities too;
   with dynamic rope scaling, if each row is rotated by the frequencies README.md states for it.
3. A model that reads the checkpoint wrongly in one way gives visibly other log-probabilities.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import fused_experts
import internlm2
import mxfp4
import oracle
import wrong
from cases import CASES, Case, Config
from oracle import Tensors

SAME = 1e-4  # another CPU may sum in another order
VISIBLE = 0.05


def verify_all(goldens: Path) -> None:
    names = sorted(path.name for path in goldens.iterdir() if (path / "config.json").exists())
    if names != sorted(case.name for case in CASES):
        raise SystemExit(f"{goldens} holds {names}, not the folders of cases.py")
    cases = [case for case in CASES if oracle.makes(case)]
    failures = [failure for case in cases for failure in verify(case, goldens / case.name)]
    if failures:
        raise SystemExit("\n".join(["", "FAILED", *failures]))


def verify(case: Case, folder: Path) -> list[str]:
    """Prints what was found and returns what is wrong."""
    failures = []

    def check(what: str, difference: float, good: bool) -> None:
        print(f"  {difference:9.2e}  {what}", flush=True)
        if not good:
            failures.append(f"{case.name}: {what}: {difference:.2e}")

    print(case.name, flush=True)
    if json.loads((folder / "config.json").read_text()) != case.config:
        failures.append(f"{case.name}: config.json is not the one of cases.py")
    records = json.loads((folder / "golden.json").read_text())["cases"]
    config, weights = case.oracle_config, read_weights(case, folder)

    difference = max(difference_of_runs(case, config, weights, record) for record in records)
    check("oracle against golden", difference, difference <= SAME)
    difference = max(difference_of_one_pass(config, weights, record) for record in records)
    check("one pass without a cache against golden", difference, difference <= SAME)
    if is_dynamic(config):
        changed = max(
            difference_of_one_pass(config, weights, record, rows=False) for record in records
        )
        check("all rows rotated by the last length's frequencies", changed, changed >= VISIBLE)
    for what, wrong_config, wrong_weights in wrong.models(case, weights):
        changed = max(
            difference_of_logprobs(wrong_config, wrong_weights, record) for record in records
        )
        check(what, changed, changed >= VISIBLE)
    return failures


def read_weights(case: Case, folder: Path) -> Tensors:
    """Under transformers' names."""
    stored: Tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        stored.update(load_file(file))
    if case.config["model_type"] == "internlm2":
        return internlm2.unpack(stored, case.config)
    if fused_experts.has_fused(case.config):
        own = {case.own_name(name): tensor for name, tensor in stored.items()}
        return fused_experts.unpack(own, case.config)
    if case.mxfp4:
        return mxfp4.unpack(stored)
    if case.prefix or case.renamed:
        names = oracle.new_model(case.oracle_config).state_dict()
        of_files = {name: case.stored_name(name) for name in names}
        return {name: stored[n] for name, n in of_files.items() if n in stored}
    return stored


def largest(a: Any, b: Any) -> float:
    """The largest difference of two equally long lists; 0 if they are empty."""
    a, b = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    return (a - b).abs().max().item() if a.numel() else 0.0


def difference_of_runs(
    case: Case, config: Config, weights: Tensors, record: dict[str, Any]
) -> float:
    found = oracle.run(oracle.with_weights(config, weights), record["prompt"], case.greedy_tokens)
    if found["greedy"] != record["greedy"]:
        return float("inf")
    return max(
        largest(found[key], record[key])
        for key in ("logprobs", "prompt_logprobs", "greedy_logprobs")
    )


@torch.no_grad()
def difference_of_logprobs(config: Config, weights: Tensors, record: dict[str, Any]) -> float:
    logits = oracle.with_weights(config, weights)(torch.tensor([record["prompt"]])).logits[0, -1]
    return largest(oracle.log_softmax(logits).tolist(), record["logprobs"])


@torch.no_grad()
def difference_of_one_pass(
    config: Config, weights: Tensors, record: dict[str, Any], rows: bool = True
) -> float:
    """`rows`: with dynamic rope scaling, rotate each row by its own frequencies."""
    model = oracle.with_weights(config, weights)
    prompt, greedy = record["prompt"], record["greedy"]
    tokens = prompt + greedy[:-1]
    if is_dynamic(config) and rows:
        lengths = [len(prompt)] * len(prompt) + [p + 1 for p in range(len(prompt), len(tokens))]
        tables = dynamic_tables(config, torch.tensor(lengths))
        rotary: Any = model.get_submodule("model.rotary_emb")
        rotary.forward = lambda x, position_ids: tables
    predicted = oracle.log_softmax(
        model(torch.tensor([tokens]), use_cache=False).logits[0, len(prompt) - 1 :]
    )
    return largest(predicted[range(len(greedy)), greedy].tolist(), record["greedy_logprobs"])


def is_dynamic(config: Config) -> bool:
    return (config.get("rope_scaling") or {}).get("rope_type") == "dynamic"


def dynamic_tables(config: Config, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [1, rows, head_dim] of rows 0, 1, ..., whose sequences have `lengths` tokens."""
    dim, limit = oracle.head_dim_of(config), config["max_position_embeddings"]
    factor = config["rope_scaling"]["factor"]
    growth = factor * lengths.clamp(min=limit).double() / limit - (factor - 1)
    theta = config["rope_theta"] * growth ** (dim / (dim - 2))
    frequencies = theta[:, None] ** (-torch.arange(0, dim, 2).double() / dim)
    angles = (torch.arange(len(lengths))[:, None] * frequencies).repeat(1, 2)[None]
    return angles.cos().float(), angles.sin().float()
