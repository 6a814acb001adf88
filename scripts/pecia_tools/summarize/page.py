# SPDX-License-Identifier: Apache-2.0
"""The summaries of books as one HTML page that needs no network: each with what it covers, and below it, to be opened,
the summaries that it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Optional

from .tree import Gap, Node

Levels = Sequence[Sequence[Node]]  # the summaries after each round, the parts' first

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>Summaries</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 50rem; padding: 2rem 1.5rem 4rem;
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h2 { margin: 2.6rem 0 .2rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.quiet, summary { opacity: .7; font-size: .9rem; }
summary { cursor: pointer; }
details { margin: .6rem 0; }
details > div { margin: .6rem 0 .6rem .3rem; padding-left: .9rem; border-left: 2px solid #8886; }
@media print { details::details-content { content-visibility: visible; } }
</style>
</head>
<body>
<h1>Summaries</h1>
"""
END = "</body>\n</html>\n"


def made_of(node: Node, levels: Levels) -> tuple[list[Node], Levels]:
    """The summaries that the node was merged from, none for a part's own, and the levels before theirs."""
    for depth in range(len(levels) - 1, -1, -1):
        told = set(node.parts)
        below = [n for n in levels[depth] if n.book == node.book and told.issuperset(n.parts)]
        if below and below != [node]:
            return below, levels[:depth]
    return [], []


def book_section(
    name: str, coverage: str, node: Optional[Node], levels: Levels, gaps: Sequence[Gap]
) -> str:
    lines = [f"<section>\n<h2>{escape(name)}</h2>", _quiet(coverage)]
    lines += [_quiet(f"missing: {gap}") for gap in gaps]
    if node is None:
        lines.append(_quiet("There is no summary of the whole."))
        lines += [_below([n for n in levels[-1] if n.book == name], levels[:-1])]
    else:
        if where := str(node.where):
            lines.append(_quiet(f"source: {where}"))
        lines += [_text(node), _below(*made_of(node, levels))]
    return "\n".join([*filter(None, lines), "</section>\n"])


def _below(nodes: Sequence[Node], levels: Levels) -> str:
    if not nodes:
        return ""
    many = f"{len(nodes)} summaries" if len(nodes) > 1 else "1 summary"
    lines = [f"<details>\n<summary>made of {many}</summary>"]
    for node in nodes:
        lines += ["<div>", _quiet(node.label), _text(node), _below(*made_of(node, levels)), "</div>"]
    return "\n".join([*filter(None, lines), "</details>"])


def _text(node: Node) -> str:
    cut = _quiet("cut at the longest length") if node.is_cut else ""
    return f"<p>{escape(node.text)}</p>{cut}"


def _quiet(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'
