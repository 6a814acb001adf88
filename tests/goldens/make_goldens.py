#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make this folder's tiny random checkpoints and their goldens.

    pip install torch==2.8.0 transformers==4.57.1 numpy==2.4.6 safetensors==0.8.0     (Python 3.11)
    python make_goldens.py [NAME ...]  writes all or these folders; two runs give the same bytes.
        Folders that cases.py gives to another major version of transformers are left out
    python make_goldens.py --verify    writes nothing, checks what is here (verify.py)

README.md describes the files.
"""

import argparse
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

import fused_experts
import internlm2
import mxfp4
import oracle
import verify
from cases import CASES, Case
from oracle import Tensors

HERE = Path(__file__).resolve().parent
MIN_GREEDY_MARGIN = 0.02
MIN_ROUTER_MARGIN = 2e-4  # of logits; rounding moves them by 1e-6
MIN_GREEDY_DISTINCT = 6  # a model that repeats one token shows little
SPECIAL_TOKENS = 5  # no prompt and no greedy continuation holds an id below
MAX_ATTEMPTS = 500


def random_numbers(case: Case, *what: int) -> np.random.Generator:
    """Of the case's name, so that another case more or less changes nothing in this one."""
    return np.random.default_rng((zlib.crc32(case.name.encode()), case.seed, *what))


def adds_one(case: Case, name: str) -> bool:
    """Whether the norm's stored weight is what is added to 1."""
    of_delta_net = "linear_conv_kernel_dim" in case.oracle_config and "linear_attn" not in name
    return "gemma3" in case.name or of_delta_net


def random_weights(case: Case) -> Tensors:
    """Under transformers' names; so wide that a wrong norm, bias, rotation or head shows."""
    rng = random_numbers(case)
    model = oracle.new_model(case.oracle_config)
    weights: Tensors = {}
    stored = model.state_dict()
    constants = {name: buffer for name, buffer in model.named_buffers() if name in stored}
    for name, parameter in sorted([*model.named_parameters(), *constants.items()]):
        noise = torch.from_numpy(rng.standard_normal(tuple(parameter.shape), dtype=np.float32))
        if "norm" in name:
            noise = (0 if adds_one(case, name) else 1) + 0.2 * noise
            if name.endswith("q_norm.weight") and case.name == "gemma4-shared-keys":
                noise = 0.25 * noise  # six layers of its sharp attention make rounding large
        elif name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
            noise = 0.7 + 0.2 * noise
        elif name.endswith("bias"):
            noise = 0.3 * noise
        elif name.endswith("A_log"):  # so that states last for some ten tokens and more
            noise = -2.5 + 0.8 * noise
        elif name.endswith(".D"):
            pass
        elif "conv1d" in name:
            noise = noise * (1.3 / parameter.shape[2] ** 0.5)
        elif name.endswith(("alpha_p", "alpha_n")):
            pass  # of xIELU; their softplus counts
        elif name.endswith("act_fn.beta"):
            noise = 0.5 + 0.2 * noise
        elif name.endswith("act_fn.eps"):
            noise = -0.5 + 0.1 * noise  # so far below 0 that it shows
        elif name.endswith("sinks"):
            pass  # as large as logits
        elif name.endswith("router.proj.weight"):
            pass  # its input is divided by the root of the hidden size
        elif "embed" in name:  # small, or a tied model would only repeat its last token
            noise = (0.17 if "gemma4" in case.name else 0.1) * noise
        else:
            noise = noise * (1.3 / parameter.shape[1] ** 0.5)
        wide = name.endswith("e_score_correction_bias")  # files have it so
        weights[name] = noise if wide else noise.to(getattr(torch, case.dtype))
    return mxfp4.unpack(mxfp4.pack(weights)) if case.mxfp4 else weights


def save_weights(folder: Path, tensors: Tensors, shards: int) -> None:
    """model.safetensors, or shards of about equal size with their index."""
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata)
        return
    total = sum(tensor.nbytes for tensor in tensors.values())
    files: list[Tensors] = [{} for _ in range(shards)]
    begin = 0
    for name, tensor in tensors.items():
        files[begin * shards // total][name] = tensor
        begin += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, held in enumerate(files, 1):
        file = f"model-{number:05}-of-{shards:05}.safetensors"
        save_file(held, folder / file, metadata)
        weight_map.update(dict.fromkeys(held, file))
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
    )


def write_json(path: Path, value: Any) -> None:
    """JSON with one line for each list, so that a difference is read easily."""

    def put(value: Any, indent: str) -> str:
        inner = indent + "  "
        if isinstance(value, dict):
            items = [f"{inner}{json.dumps(key)}: {put(item, inner)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + f"\n{indent}}}"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(inner + put(item, inner) for item in value) + f"\n{indent}]"
        return json.dumps(value)

    path.write_text(put(value, "") + "\n", encoding="utf-8", newline="\n")


def rounded(value: Any) -> Any:
    """Floats at 7 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def golden_record(case: Case, weights: Tensors, length: int) -> dict[str, Any]:
    """Of the first random prompt that goes on without close calls, special tokens or stutter."""
    for attempt in range(MAX_ATTEMPTS):
        rng = random_numbers(case, length, attempt)
        vocab = case.oracle_config["vocab_size"]
        prompt = rng.integers(SPECIAL_TOKENS, vocab, length).tolist()
        model = oracle.with_weights(case.oracle_config, weights)
        record = oracle.run(model, prompt, case.greedy_tokens)
        greedy = record["greedy"]
        if (
            record["greedy_margin"] >= MIN_GREEDY_MARGIN
            and record.get("router_margin", MIN_ROUTER_MARGIN) >= MIN_ROUTER_MARGIN
            and min(greedy) >= SPECIAL_TOKENS
            and len(set(greedy)) >= MIN_GREEDY_DISTINCT
        ):
            return {key: rounded(value) for key, value in record.items()}
    raise SystemExit(f"{case.name}: no good prompt of {length} tokens; give the case another seed")


def other_parts(case: Case) -> Tensors:
    """Tensors of what a model has beside its text, which readers leave alone."""
    if not case.prefix:
        return {}
    names = ["vision_tower.vision_model.post_layernorm", "multi_modal_projector.mm_soft_emb_norm"]
    if "linear_conv_kernel_dim" in case.oracle_config:
        names = ["model.visual.merger.norm", "mtp.norm"]
    return {f"{name}.weight": torch.ones(8) for name in names}


def make(case: Case) -> None:
    folder = HERE / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    weights = random_weights(case)
    packed = weights
    if case.config["model_type"] == "internlm2":
        packed = internlm2.pack(weights, case.config)
    elif fused_experts.has_fused(case.config):
        packed = fused_experts.pack(weights, case.config)
    elif case.mxfp4:
        packed = mxfp4.pack(weights)
    stored = {case.stored_name(name): tensor for name, tensor in packed.items()}
    save_weights(folder, stored | other_parts(case), case.shards)
    write_json(folder / "config.json", case.config)
    eos = list(case.eos) if isinstance(case.eos, tuple) else case.eos
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": eos})
    records = [golden_record(case, weights, length) for length in case.prompts]
    write_json(folder / "golden.json", {"cases": records})
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes for its owner alone
    margins = ", ".join(f"{record['greedy_margin']:.3f}" for record in records)
    print(f"{case.name}: greedy margins {margins}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--verify", action="store_true", help="check what is here instead of making it"
    )
    parser.add_argument("names", nargs="*", help="make these folders only")
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    names = arguments.names
    if arguments.verify:
        verify.verify_all(HERE)
        return
    for case in CASES:
        if (not names or case.name in names) and oracle.makes(case):
            make(case)


if __name__ == "__main__":
    main()
