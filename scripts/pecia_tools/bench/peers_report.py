# SPDX-License-Identifier: Apache-2.0
"""Tables of what `bench peers` measured. A figure is the median of its rounds; of each program the
settings count that were fastest in a case.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Optional

from .common import Line, show

OWN = "pecia"
INTEGERS = ("int8", "int4")  # its types of weights that are no 16 bits
PEERS = ("transformers", "llama.cpp", "openvino")

PRODUCTS = {8192: (576, 1536), 2048: (2048, 2048)}  # rows: depth and columns

# Heads, KV heads and head_dim of causal attention over as many queries as keys, of bf16.
ATTENTION = {
    "attention, 9/3 heads of 64": (9, 3, 64),
    "attention, 32/8 heads of 128": (32, 8, 128),
}
ATTENTION_TOKENS = (2048, 8192)

# "prefill" and the prompt's tokens, "decode" and those before it, "batch" and its prompts, "product" and its rows, or
# a kind of attention and its queries
Case = tuple[str, int]
ORDER = ("product", *ATTENTION, "prefill", "decode", "batch")


def cases(lines: Sequence[Line]) -> list[Case]:
    found = {(line["what"], line["tokens"]) for line in lines}
    return sorted(found, key=lambda case: (ORDER.index(case[0]), case[1]))


def title(case: Case) -> str:
    if case[0] == "product":
        depth, columns = PRODUCTS[case[1]]
        return f"rows of [{case[1]} × {depth}] · [{depth} × {columns}]"
    if case[0] in ATTENTION:
        return f"queries of {case[0]}, {case[1]} causal"
    words = {"prefill": "prefill of {}", "decode": "decode after {}", "batch": "{} prompts at once"}
    return words[case[0]].format(case[1])


class Rates:
    """Tokens/s of one case, by peer and settings."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines: dict[tuple[str, str], list[Line]] = {}
        for line in lines:
            self.lines.setdefault((line["peer"], line["settings"]), []).append(line)

    def median(self, key: tuple[str, str], figure: str = "tokens_per_s") -> float:
        return statistics.median(line[figure] for line in self.lines[key])

    def best(self, peers: Sequence[str], quantized: bool = True) -> Optional[tuple[str, str]]:
        """Peer and settings with the highest median, if any was measured; without `quantized` the weights have 16 bits
        or more."""
        keys = [
            key
            for key in self.lines
            if key[0] in peers and (quantized or not key[1].startswith(("Q", *INTEGERS)))
        ]
        return max(keys, key=self.median, default=None)


def of(lines: Sequence[Line], case: Case) -> Rates:
    return Rates(line for line in lines if (line["what"], line["tokens"]) == case)


def ratio(rates: Rates, own: Optional[tuple[str, str]], other: Optional[tuple[str, str]]) -> str:
    if own is None or other is None:
        return "–"
    return f"{rates.median(own) / rates.median(other):.2f} ({other[0]})"


def side_by_side(lines: Sequence[Line]) -> list[list[str]]:
    rows = []
    for case in cases(lines):
        rates = of(lines, case)
        row = [title(case)]
        for peer in (OWN, *PEERS):
            key = rates.best([peer])
            row += [f"{rates.median(key):.1f}", key[1]] if key else ["–", "–"]
        own = rates.best([OWN])
        row += [
            ratio(rates, rates.best([OWN], quantized), rates.best(PEERS, quantized))
            for quantized in (True, False)
        ]
        floor = own and all("share_of_floor" in line for line in rates.lines[own])
        row.append(f"{100 * rates.median(own, 'share_of_floor'):.0f} %" if own and floor else "–")
        rows.append(row)
    return rows


def each_setting(lines: Sequence[Line]) -> list[list[str]]:
    """The median, and the slowest and fastest round."""
    every = {case: of(lines, case).lines for case in cases(lines)}
    rows = []
    for key in dict.fromkeys((line["peer"], line["settings"]) for line in lines):
        row = list(key)
        for found in every.values():
            rates = [line["tokens_per_s"] for line in found.get(key, [])]
            middle = f"{statistics.median(rates):.1f}" if rates else "–"
            row.append(f"{middle} ({min(rates):.1f}–{max(rates):.1f})" if rates[1:] else middle)
        rows.append(row)
    return rows


def tables(lines: Sequence[Line]) -> None:
    with_each = [word for peer in (OWN, *PEERS) for word in (f"{peer} tok/s", "with")]
    show(
        "Pecia beside others",
        (
            "case",
            *with_each,
            "best / best other",
            "the same of 16 bits or more",
            "pecia's share of the floor",
        ),
        side_by_side(lines),
    )
    show(
        "Every setting, tokens/s: median (slowest–fastest round)",
        ("program", "settings", *map(title, cases(lines))),
        each_setting(lines),
    )
    others = [line["foreign_cpus"] for line in lines]
    print(
        f"\nOther work kept {statistics.median(others):.2f} CPUs busy meanwhile, at most {max(others):.2f}."
    )
