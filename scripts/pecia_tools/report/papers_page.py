# SPDX-License-Identifier: Apache-2.0
"""What pecia plan --papers --json says, as one HTML page: the papers' plots with this program's lines in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from ..command import UserError
from .numbers import plural
from .page import Section, render_page
from .style import LIGHT, axes
from .tables import Card, Table

SCHEMA = "pecia.papers/1"
COLOURS = ("blue", "orange", "green", "purple", "grey", "ink")


def check_papers(path: Path, document: dict[str, Any]) -> None:
    if document.get("schema") != SCHEMA or not document.get("papers"):
        raise UserError(f"{path} has no papers; write it with pecia plan --papers --json > {path.name}")


def lines_of(paper: dict[str, Any], plot: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a plot by its lines, each from left to right."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in paper["rows"]:
        if row.get("plot", {}).get("name") == plot:
            lines.setdefault(row["plot"]["line"], []).append(row)
    return {line: sorted(rows, key=lambda row: row["plot"]["x"]) for line, rows in lines.items()}


def figure_of(paper: dict[str, Any], plot: dict[str, Any]) -> Figure:
    """Ours as lines; published ones as marks, or as bars where a range was published."""
    figure, (axis,) = axes(3.4)
    lines = lines_of(paper, plot["name"])
    for number, (line, rows) in enumerate(lines.items()):
        colour = LIGHT[COLOURS[number % len(COLOURS)]]
        ours = [(row["plot"]["x"], row["ours"]) for row in rows if row["ours"] is not None]
        if ours:
            axis.plot(*zip(*ours), color=colour, linewidth=1.2, marker=".", markersize=4, label=f"{line}, here")
        published = [row for row in rows if row["published"] is not None]
        singles = [(row["plot"]["x"], row["published"]) for row in published if row["published_to"] is None]
        ranges = [(row["plot"]["x"], row["published"], row["published_to"]) for row in published]
        ranges = [each for each in ranges if each[2] is not None]
        if singles:
            axis.plot(
                *zip(*singles),
                color=colour,
                linestyle="",
                marker="x",
                markersize=5,
                label=f"{line}, published",
            )
        if ranges:
            axis.vlines(*zip(*ranges), color=colour, linewidth=5, alpha=0.35, label=f"{line}, published")
    if plot["log_x"]:
        axis.set_xscale("log")
    if plot["log_y"]:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    places = sorted({row["plot"]["x"] for rows in lines.values() for row in rows})
    axis.set_xticks(places, [f"{place:g}" for place in places], rotation=0 if len(places) < 8 else 45)
    axis.minorticks_off()
    axis.set_xlabel(plot["x_axis"])
    axis.set_ylabel(plot["y_axis"])
    axis.set_title(plot["name"])
    axis.legend(loc="best")
    return figure


def number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.4g} {unit}".strip()


def percent(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def published(row: dict[str, Any]) -> str:
    if row["published"] is None:
        return "not at hand"
    upper = row["published_to"]
    return f"{row['published']:.4g} to {upper:.4g}" if upper is not None else number(row["published"], row["unit"])


def table(paper: dict[str, Any]) -> Table:
    heads = ("figure", "setting", "published", "here", "error", "may be", "how", "note")
    rows = [
        (
            row["what"] + (" *" if row["fitted"] else ""),
            row["setting"],
            published(row),
            number(row["ours"], row["unit"]),
            percent(row["error"], "+.1%"),
            percent(row["allowed"], ".0%"),
            row["how"],
            "; ".join(row[key] for key in ("note", "command", "measured_on", "page") if row.get(key)),
        )
        for row in paper["rows"]
    ]
    return Table(heads, rows)


def constants(paper: dict[str, Any]) -> list[Table]:
    rows = [
        (each["name"], number(each["value"], each["unit"]), each["fitted_to"], percent(each["largest_share"], ".0%"))
        for each in paper["constants"]
    ]
    return [Table(("fitted (*)", "value", "to", "of that figure"), rows)] if rows else []


def claims(paper: dict[str, Any]) -> list[Table]:
    rows = [("holds" if each["holds"] else "does not hold", each["text"]) for each in paper["claims"]]
    return [Table(("here", "claim"), rows)] if rows else []


def sections(document: dict[str, Any]) -> list[Section]:
    found = []
    for paper in document["papers"]:
        for index, plot in enumerate(paper["plots"]):
            name = re.sub(r"\W+", "-", f"{paper['name']}-{plot['name']}").strip("-").lower()
            tables = [] if index < len(paper["plots"]) - 1 else [*claims(paper), *constants(paper), table(paper)]
            title = f"{paper['name']}: {plot['name']}"
            found.append(Section(title, name, figure_of(paper, plot), f"{paper['title']}. {paper['machine']}", tables))
    return found


def render(path: Path, document: dict[str, Any], found: Sequence[Section]) -> str:
    rows = [row for paper in document["papers"] for row in paper["rows"]]
    asserted = [row for row in rows if row["allowed"] is not None and row["error"] is not None and not row["fitted"]]
    off = max((abs(row["error"]) for row in asserted), default=0.0)
    inside = sum(abs(row["error"]) <= 0.1 for row in asserted)
    compared = sum(row["error"] is not None for row in rows)
    cards = [
        Card(str(len(document["papers"])), "papers", f"{plural(len(rows), 'figure')}, {compared} beside published"),
        Card(f"{inside} of {len(asserted)}", "within 10 %", "of those asserted and not fitted"),
        Card(f"{off:.0%}", "the largest error", "of these"),
    ]
    return render_page(
        title=f"{path.name} · published figures and this program's",
        status="What pecia plan --papers foresees; what was measured on ranks is marked so.",
        written=path.stat().st_mtime,
        cards=cards,
        facts=[(paper["name"], paper["machine"]) for paper in document["papers"]],
        found=found,
    )
