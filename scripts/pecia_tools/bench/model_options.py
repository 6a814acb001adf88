# SPDX-License-Identifier: Apache-2.0
"""make-bench-model FOLDER: a Llama, Qwen3-MoE, gpt-oss, GLM-4.5, DeepSeek-V3, Mistral 4, Llama 4, Gemma 4, Qwen3.5,
Qwen3-Next, Granite 4 or Nemotron-H checkpoint of a given shape with random weights, for benchmarks alone.

Weights are bf16, the experts of gpt-oss MXFP4, and with --nvfp4 the layers' matrices NVFP4. The same options give the
same bytes. Nothing is done where the folder already holds that model. Needs Python alone: on a machine without this
project's packages `python3 -m pecia_tools.bench.model`, in scripts, does too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command import UserError
from . import model_hybrids
from .model_numbers import BLOCK, NVFP4_BLOCK

PROGRAM = "make-bench-model"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="example: scripts/make-bench-model models/bench --hidden 1024 --heads 16 --layers 8",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--ffn", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=0, help="of each layer; 0: a dense model")
    parser.add_argument("--experts-per-token", type=int, default=1)
    parser.add_argument("--gpt-oss", action="store_true", help="experts, in MXFP4, are those of gpt-oss")
    parser.add_argument("--nvfp4", action="store_true", help="matrices of layers, as compressed-tensors stores them")
    parser.add_argument("--llama-4", action="store_true", help="experts and attention in chunks, as in Llama 4")
    parser.add_argument("--glm-4", action="store_true", help="experts, a shared one and biases, as in GLM-4.5")
    parser.add_argument("--kv-rank", type=int, default=0, help="latents of a token, as in DeepSeek-V3; 0: none")
    parser.add_argument("--q-rank", type=int, default=0, help="with --kv-rank: latents of a query; 0: none")
    parser.add_argument("--rope-dim", type=int, default=64, help="with --kv-rank: rotated beside --head-dim")
    parser.add_argument("--value-dim", type=int, default=0, help="with --kv-rank: of a head; 0: as --head-dim")
    parser.add_argument("--mistral-4", action="store_true", help="with --kv-rank: experts as in Mistral 4")
    parser.add_argument(
        "--shared-experts",
        type=int,
        default=0,
        help="with --glm-4, --kv-rank, --delta-net or --mamba: for every token; 0: none",
    )
    parser.add_argument(
        "--dense-layers",
        type=int,
        default=0,
        help="with --glm-4 or --kv-rank: the first ones, without experts",
    )
    parser.add_argument("--dense-ffn", type=int, default=0, help="of layers without experts; 0: as --ffn")
    parser.add_argument(
        "--full-head-dim",
        type=int,
        default=0,
        help="of each sixth layer, as in Gemma 4; others have windows; 0: none",
    )
    parser.add_argument("--full-kv-heads", type=int, default=1, help="with --full-head-dim: of the same layers")
    parser.add_argument("--window", type=int, default=1024, help="with --full-head-dim: of the other layers")
    model_hybrids.add_options(parser)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        least = 0 if parser.get_default(name) == 0 else 1
        if name != "seed" and type(value) is int and value < least:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    check_sizes(options)
    check_families(options)
    model_hybrids.check(options)
    options.value_dim = options.value_dim or options.head_dim
    options.dense_ffn = options.dense_ffn or options.ffn
    return options


def check_sizes(options: argparse.Namespace) -> None:
    if options.heads % options.kv_heads != 0:
        raise UserError(f"--kv-heads {options.kv_heads} does not divide --heads {options.heads}")
    if options.heads % options.full_kv_heads != 0:
        raise UserError(f"--full-kv-heads {options.full_kv_heads} does not divide --heads {options.heads}")
    if options.experts and options.experts_per_token > options.experts:
        raise UserError(f"--experts-per-token {options.experts_per_token} of --experts {options.experts}")
    if options.gpt_oss and (options.hidden % BLOCK or options.ffn % BLOCK):
        raise UserError(f"--gpt-oss needs --hidden and --ffn of whole blocks of {BLOCK}")
    inputs = (options.hidden, options.ffn, options.heads * options.head_dim)
    if options.nvfp4 and any(size % NVFP4_BLOCK for size in inputs):
        raise UserError(f"--nvfp4 needs --hidden, --ffn and --heads · --head-dim of whole blocks of {NVFP4_BLOCK}")


def check_families(options: argparse.Namespace) -> None:
    """What no family has together."""
    mixtures = [name for name in ("gpt_oss", "llama_4", "glm_4", "mistral_4") if getattr(options, name)]
    families = mixtures + [name for name in ("delta_net", "mamba") if getattr(options, name)]
    named = " and ".join(f"--{name.replace('_', '-')}" for name in families)
    if len(families) > 1:
        raise UserError(f"{named} are different families; name one")
    if options.kv_rank and families not in ([], ["mistral_4"]):
        raise UserError(f"{named} has no latents; leave out --kv-rank")
    if mixtures and not options.experts:
        raise UserError(f"{named} needs --experts")
    if options.mistral_4 and not options.kv_rank:
        raise UserError("--mistral-4 needs --kv-rank")
    has_dense = options.glm_4 or (options.kv_rank and options.experts)
    if options.dense_layers and not has_dense:
        raise UserError("--dense-layers is for --glm-4, and for --kv-rank with --experts")
    if options.shared_experts and not (has_dense or (model_hybrids.is_hybrid(options) and options.experts)):
        raise UserError("--shared-experts is for --glm-4, and for --kv-rank, --delta-net and --mamba with --experts")
    if options.full_head_dim and (families or options.kv_rank or options.experts):
        raise UserError("--full-head-dim is for dense models that attend, without latents")
    if options.nvfp4 and (families or options.kv_rank or options.full_head_dim):
        raise UserError("--nvfp4 is for models of Llama's and Qwen3-MoE's form")
