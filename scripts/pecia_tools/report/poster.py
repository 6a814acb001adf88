# SPDX-License-Identifier: Apache-2.0
"""The top of a run's page as one image: headline numbers and figures, drawn with matplotlib alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from ..runs.folder import RunFolder
from ..runs.trace import Trace
from . import tables as tables
from .page import Section, sections, status
from .style import DOTS_PER_INCH, LIGHT, WIDTH, style
from .tables import Card

COLOURS = 64  # flat drawings need no more, and a palette makes the file small
CARDS = 4
TITLE_SIZE = 12


def poster(
    folder: RunFolder, trace: Optional[Trace], shown: Sequence[str]
) -> Optional[Image.Image]:
    """Those of the page's sections that have a figure; None without any."""
    found = {section.name: section for section in sections(folder, trace) if section.figure}
    figures = [titled(found[name]) for name in shown if name in found]
    if not figures:
        return None
    return stacked([header(folder), *figures]).quantize(COLOURS, dither=Image.Dither.NONE)


def header(folder: RunFolder) -> Figure:
    """Title, status and the first cards of the page."""
    style()
    figure = Figure(figsize=(WIDTH, 1.75))
    facts = dict(tables.what_ran(folder))
    title = f"{folder.path.resolve().name} · {Path(facts.get('Model', '')).name}"
    figure.text(0.012, 0.86, title, fontsize=17, fontweight="bold")
    figure.text(0.012, 0.69, status(folder), fontsize=10)
    cards = tables.cards(folder)[:CARDS]
    for place, card in enumerate(cards):
        _draw_card(figure, card, 0.012 + place * 0.976 / CARDS, 0.976 / CARDS - 0.012)
    return figure


def _draw_card(figure: Figure, card: Card, left: float, width: float) -> None:
    look = {"boxstyle": "round,pad=0,rounding_size=0.01", "facecolor": LIGHT["sheet"]}
    figure.patches.append(
        FancyBboxPatch((left, 0.03), width, 0.52, linewidth=0, transform=figure.transFigure, **look)
    )
    figure.text(left + 0.012, 0.36, card.value, fontsize=14, fontweight="bold")
    figure.text(left + 0.012, 0.22, card.what, fontsize=9.5)
    figure.text(left + 0.012, 0.09, card.more, fontsize=9, color=LIGHT["muted"])


def titled(section: Section) -> Figure:
    assert section.figure is not None  # poster() takes those alone
    section.figure.suptitle(
        section.title, x=0.012, ha="left", fontsize=TITLE_SIZE, fontweight="bold"
    )
    return section.figure


def stacked(figures: Sequence[Figure]) -> Image.Image:
    """The figures below one another, on paper."""
    images = []
    for figure in figures:
        drawn = io.BytesIO()
        figure.savefig(
            drawn, format="png", dpi=DOTS_PER_INCH, transparent=False, facecolor=LIGHT["paper"]
        )
        images.append(Image.open(drawn).convert("RGB"))
    margin = DOTS_PER_INCH // 6
    height = sum(image.height + margin for image in images) + margin
    sheet = Image.new("RGB", (images[0].width + 2 * margin, height), LIGHT["paper"])
    top = margin
    for image in images:
        sheet.paste(image, (margin, top))
        top += image.height + margin
    return sheet
