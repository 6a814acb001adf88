# SPDX-License-Identifier: Apache-2.0
"""How all figures look, and how they become SVG within a page, or PNG.

Figures are drawn in the colours of LIGHT. Within a page each of these becomes a CSS variable of the same name, so that
one drawing serves light, dark and print."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Told apart by people with any colour vision (Okabe and Ito), and in dark by lightness alike.
LIGHT = {
    "paper": "#ffffff",
    "sheet": "#f5f6f8",
    "ink": "#1f2428",
    "muted": "#5b646d",
    "line": "#c9ced4",
    "blue": "#1f77b4",
    "orange": "#d9660a",
    "grey": "#b4bac1",
    "green": "#0f8a66",
    "purple": "#a5629b",
}
DARK = {
    "paper": "#16191c",
    "sheet": "#20252a",
    "ink": "#e6e9ec",
    "muted": "#a3acb5",
    "line": "#444c54",
    "blue": "#5aaee8",
    "orange": "#f19a4c",
    "grey": "#6a737c",
    "green": "#3fc39a",
    "purple": "#d19ac8",
}
WIDTH = 9.2  # inches; the page scales it down to what it has
DOTS_PER_INCH = 144  # of what is drawn as an image
MANY_MARKS = 2500  # above this an image is smaller than its marks

FONT = re.compile(r"(font-family: |font: [^;\"]*?px )[^;\"]+")  # one or the other, by version
OUTSIDE_SVG = re.compile(r"^.*?(?=<svg)", re.S)
SIZE = re.compile(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>')
NAMED = re.compile(r'(\bid="|url\(#|xlink:href="#)')


def style() -> None:
    matplotlib.rcParams.update(
        {
            "figure.dpi": DOTS_PER_INCH,
            "savefig.dpi": DOTS_PER_INCH,
            "savefig.transparent": True,
            "figure.constrained_layout.use": True,
            "svg.fonttype": "none",
            "text.parse_math": False,  # a host may have any name
            "font.size": 9.5,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "axes.edgecolor": LIGHT["line"],
            "axes.labelcolor": LIGHT["muted"],
            "axes.titlecolor": LIGHT["ink"],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": LIGHT["line"],
            "grid.linewidth": 0.5,
            "text.color": LIGHT["ink"],
            "xtick.color": LIGHT["muted"],
            "ytick.color": LIGHT["muted"],
            "legend.frameon": False,
            "legend.fontsize": 9,
        }
    )


def axes(height: float, rows: int = 1, columns: int = 1, **options: object) -> tuple[Figure, list]:
    """A figure as wide as the page, and its axes in reading order."""
    style()
    figure = Figure(figsize=(WIDTH, height))
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def legend_above(axis: Axes, columns: int = 6) -> None:
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.2,
        columnspacing=1.6,
    )


def to_svg(figure: Figure, name: str, label: str) -> str:
    """An <svg> element for a page. `name` keeps its ids apart from those of other figures."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            text,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = OUTSIDE_SVG.sub("", text.getvalue(), count=1)
    svg = SIZE.sub(rf'<svg viewBox="\1" role="img" aria-label="{label}">', svg, count=1)
    svg = NAMED.sub(rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = FONT.sub(r"\1var(--sans)", svg)
    for colour, value in LIGHT.items():
        svg = svg.replace(value, f"var(--{colour})")
    return svg


def to_png(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="png", transparent=False, facecolor=LIGHT["paper"])
