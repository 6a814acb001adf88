# SPDX-License-Identifier: Apache-2.0
"""Hybrids, most of whose layers keep a state of fixed size while the others attend: a gated delta net as in Qwen3.5
and, with experts, Qwen3-Next; Mamba-2 as in Granite 4 and, with a pattern of single blocks, Nemotron-H."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple, Union

from ..command import UserError

CONV = 4  # rows that a convolution sees
BLOCKS = "M*-E"  # of Nemotron-H: Mamba-2, attention, a feed-forward, experts


class DeltaNet(NamedTuple):
    key_heads: int
    heads: int
    dim: int


class Mamba(NamedTuple):
    heads: int
    dim: int
    state: int
    groups: int


def sizes(kind: type[Union[DeltaNet, Mamba]]) -> Callable[[str], Union[DeltaNet, Mamba]]:
    """Reads them from text, with colons between."""

    def read(text: str) -> Union[DeltaNet, Mamba]:
        words = text.split(":")
        if len(words) != len(kind._fields) or not all(word.isdecimal() and int(word) for word in words):
            raise argparse.ArgumentTypeError(f"{text!r} is not {form(kind)}, whole numbers from 1 on")
        return kind(*map(int, words))

    return read


def form(kind: type[Union[DeltaNet, Mamba]]) -> str:
    return ":".join(kind._fields).upper()


def add_options(parser: argparse.ArgumentParser) -> None:
    for name, kind, families in (
        ("--delta-net", DeltaNet, "Qwen3.5, with --experts in Qwen3-Next"),
        ("--mamba", Mamba, "Granite 4"),
    ):
        about = f"most layers keep a state, as in {families}"
        parser.add_argument(name, type=sizes(kind), metavar=form(kind), help=about)
    parser.add_argument("--full-every", type=int, default=4, help="with them: each such layer attends (default: 4)")
    parser.add_argument(
        "--nemotron-h",
        default="",
        metavar="PATTERN",
        help="with --mamba: blocks as in Nemotron-H, over and over: M (Mamba-2), * (attention), - (a feed-forward "
        "without a gate, of --dense-ffn), E (experts)",
    )


def check(options: argparse.Namespace) -> None:
    if options.nemotron_h and not options.mamba:
        raise UserError("--nemotron-h needs --mamba")
    if not is_hybrid(options):
        return
    if options.experts and not options.shared_experts:
        raise UserError("hybrids with --experts have shared ones: name --shared-experts")
    if options.delta_net:
        check_delta_net(options)
    elif options.nemotron_h:
        check_nemotron_h(options)
    else:
        check_granite(options)


def check_delta_net(options: argparse.Namespace) -> None:
    net = options.delta_net
    if net.heads % net.key_heads != 0:
        raise UserError(f"--delta-net: {net.key_heads} key heads do not divide {net.heads} heads")
    if options.head_dim % 8 != 0:
        raise UserError(f"--head-dim {options.head_dim}: --delta-net rotates pairs in a quarter of it, so 8 divides it")


def check_groups(mamba: Mamba) -> None:
    if mamba.heads % mamba.groups != 0:
        raise UserError(f"--mamba: {mamba.groups} groups do not divide {mamba.heads} heads")


def check_nemotron_h(options: argparse.Namespace) -> None:
    check_groups(options.mamba)
    unknown = sorted(set(options.nemotron_h) - set(BLOCKS))
    if unknown:
        raise UserError(f"--nemotron-h {options.nemotron_h}: {unknown[0]!r} is none of {BLOCKS}")
    if bool(options.experts) != ("E" in kinds_of_layers(options)):
        raise UserError("--nemotron-h: E in --layers of the pattern and --experts need each other")


def check_granite(options: argparse.Namespace) -> None:
    mamba = options.mamba
    check_groups(mamba)
    if options.heads * options.head_dim != options.hidden:
        raise UserError(f"--mamba: --heads · --head-dim is not --hidden {options.hidden}, as it is in Granite 4")
    if mamba.heads * mamba.dim % options.hidden != 0:
        raise UserError(f"--mamba: heads · dim is no multiple of --hidden {options.hidden}, as it is in Granite 4")


def is_hybrid(options: argparse.Namespace) -> bool:
    return bool(options.delta_net or options.mamba)


def is_recurrent(options: argparse.Namespace, layer: int) -> bool:
    return bool((layer + 1) % options.full_every != 0)


def shared_ffn(options: argparse.Namespace) -> int:
    """Columns of the shared experts together."""
    return int(options.shared_experts * options.ffn)


def kinds_of_layers(options: argparse.Namespace) -> str:
    """The pattern of Nemotron-H, repeated."""
    pattern: str = options.nemotron_h
    return (pattern * options.layers)[: options.layers]
