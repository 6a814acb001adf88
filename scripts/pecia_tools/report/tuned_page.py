# SPDX-License-Identifier: Apache-2.0
"""What pecia tune measured, as one HTML page: loss and retrieval over time, and what the models would choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from ..command import UserError
from .numbers import duration, percent, plural
from .page import Section, render_page
from .style import LIGHT, axes
from .tables import Card, Table

SCHEMA = "pecia.tuned/4"
COLOURS = ("blue", "orange", "green")  # of 2, 3 and 4 levels
MARKS = {"even": "o", "spread": "^", "mass": "s"}  # of deals


@dataclass(frozen=True)
class Point:
    """Means over the prompts with one setting."""

    drop: float
    deal: str
    levels: int
    parts: str
    loss: float
    loss_error: float
    same_answers: float
    retrieval: float
    ttft_s: float


def check_tuned(path: Path, tuned: dict[str, Any]) -> None:
    if tuned.get("schema") != SCHEMA:
        raise UserError(f"{path} has not the schema {SCHEMA}; let pecia tune write it again")


def parts_words(micro: int | list[int]) -> str:
    """ "4", or "8, 2" where levels have other numbers."""
    return str(micro) if isinstance(micro, int) else ", ".join(map(str, micro))


def points(tuned: dict[str, Any]) -> list[Point]:
    """By levels, deal and drop."""
    by_setting: dict[tuple[int, str, float, str], list[dict[str, Any]]] = {}
    for sample in tuned["samples"]:
        key = (sample["levels"], sample["deal"], sample["drop"], parts_words(sample["micro"]))
        by_setting.setdefault(key, []).append(sample)
    found = []
    for (levels, deal, drop, parts), samples in sorted(by_setting.items()):
        means = {
            name: fmean(sample[name] for sample in samples)
            for name in ("loss", "same_answers", "retrieval", "ttft_s")
        }
        error = sum(sample["loss_error"] ** 2 for sample in samples) ** 0.5 / len(samples)
        found.append(Point(drop, deal, levels, parts, loss_error=error, **means))
    return found


def curve_figure(tuned: dict[str, Any]) -> Figure:
    """Loss over time, and retrieval over the drop; dense attention in both."""
    figure, (left, right) = axes(3.4, columns=2)
    dense_s = fmean(sample["ttft_s"] for sample in tuned["dense"])
    retrieval = fmean(sample["retrieval"] for sample in tuned["dense"])
    found = points(tuned)
    colours = dict(zip(sorted({point.levels for point in found}), COLOURS))
    for levels, deal in sorted({(point.levels, point.deal) for point in found}):
        of_levels = [point for point in found if (point.levels, point.deal) == (levels, deal)]
        label = f"{levels} levels" + ("" if deal == "even" else f" by {deal}")
        shown: dict[str, Any] = {
            "color": LIGHT[colours[levels]],
            "marker": MARKS[deal],
            "markersize": 4,
            "label": label,
        }
        left.errorbar(
            [point.ttft_s for point in of_levels],
            [point.loss for point in of_levels],
            yerr=[point.loss_error for point in of_levels],
            linewidth=1,
            **shown,
        )
        for point in of_levels:
            left.annotate(
                f"{100 * point.drop:.3g}",
                (point.ttft_s, point.loss),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=8,
                color=LIGHT["muted"],
            )
        right.plot(
            [100 * point.drop for point in of_levels],
            [100 * point.retrieval for point in of_levels],
            **shown,
        )
    left.plot([dense_s], [0], color=LIGHT["ink"], marker="s", markersize=5, linestyle="", label="dense")
    right.axhline(100 * retrieval, color=LIGHT["ink"], linewidth=1, label="dense")
    left.set_title("loss in nats per token over TTFT in s; numbers are % dropped")
    right.set_title("retrieval, % of tokens, over % dropped")
    right.set_ylim(0, 105)
    left.legend(loc="best")
    return figure


def measured(tuned: dict[str, Any]) -> Table:
    dense = tuned["dense"]
    rows = [
        (
            "dense",
            "",
            "",
            "",
            "",
            "",
            percent(fmean(sample["retrieval"] for sample in dense)),
            duration(fmean(sample["ttft_s"] for sample in dense)),
        )
    ]
    rows += [
        (
            percent(point.drop),
            point.deal,
            str(point.levels),
            point.parts,
            f"{point.loss:.4f} ± {point.loss_error:.4f}",
            percent(point.same_answers),
            percent(point.retrieval),
            duration(point.ttft_s),
        )
        for point in points(tuned)
    ]
    heads = ("drop", "deal", "levels", "parts", "loss, nats per token", "same answers", "retrieval", "TTFT")
    return Table(heads, rows)


def goal_words(goal: dict[str, float]) -> str:
    if "loss" in goal:
        return f"loss {goal['loss']:g}"
    if "ttft_share_of_dense" in goal:
        return f"{percent(goal['ttft_share_of_dense'])} of dense TTFT"
    return f"TTFT {duration(goal['ttft_s'])}"


def held_out(tuned: dict[str, Any]) -> Table:
    rows = []
    for of in tuned["held_out_goals"]:
        value = f"{of['measured']:.4f}" if "loss" in of["goal"] else percent(of["measured"])
        kept = ("yes" if of["kept"] else "no") if of["prompts"] else "no setting meets it"
        rows.append((goal_words(of["goal"]), value if of["prompts"] else "", kept))
    return Table(("goal", "measured", "kept"), rows)


def setting_words(found: dict[str, Any]) -> str:
    micro = found["micro"]
    parts = plural(micro, "part") if isinstance(micro, int) else f"{parts_words(micro)} parts"
    deal = "" if found["deal"] == "even" else f" by {found['deal']}"
    return f"{percent(found['drop'])}{deal} at {found['levels']} levels in {parts}"


def chosen(tuned: dict[str, Any]) -> Table:
    rows = []
    for of in tuned["chosen"]:
        best, gap = "", ""
        if of["oracle"]:
            best = setting_words(of["oracle"]["best"])
            if of["oracle"]["models"]:
                is_loss = "loss" in of["goal"]
                gap = f"{100 * of['oracle']['gap']:+.1f} %" if is_loss else f"{of['oracle']['gap']:+.4f}"
        found = of["found"]
        rows.append(
            (
                f"{of['shortest']}–{of['longest']}",
                goal_words(of["goal"]) + ("" if of["met"] else " (not met; nearest)"),
                setting_words(found),
                f"{found['loss']:.4f}",
                percent(found["retrieval"]),
                duration(found["ttft_s"]),
                best,
                gap,
            )
        )
    heads = ("tokens", "goal", "chosen", "loss up to", "retrieval from", "TTFT", "best measured", "gap")
    return Table(
        heads,
        rows,
        "A gap is one in time for a goal of loss, and one in nats for a goal of time. Retrieval is a share of dense "
        "attention's.",
    )


def sections(tuned: dict[str, Any]) -> list[Section]:
    errors = (tuned["loss_model"]["held_out"], tuned["time_model"]["held_out"])
    caption = (
        "Means over the prompts. Retrieval is the share of the tokens of an earlier passage that the model finds again"
        " at the prompt's end."
    )
    of_models = (
        f"Each prompt was held out once. The loss is then off by {errors[0]['mean_absolute_error']:.4f} nats, of which"
        f" the samples' own errors make {errors[0]['noise']:.4f} (accuracy {percent(errors[0]['accuracy'])}); TTFT is"
        f" off by {duration(errors[1]['mean_absolute_error'])} (accuracy {percent(errors[1]['accuracy'])})."
    )
    return [
        Section("Loss, retrieval and time", "curve", curve_figure(tuned), caption, [measured(tuned)]),
        Section("Prompts that were not fitted", caption=of_models, tables=[held_out(tuned)]),
        Section("What the models choose", tables=[chosen(tuned)]),
    ]


def render(path: Path, tuned: dict[str, Any], found: Sequence[Section]) -> str:
    grid, lengths = tuned["grid"], [sample["tokens"] for sample in tuned["dense"]]
    facts = [
        ("Model", tuned["model"]["path"]),
        ("Grid", f"cp × sp {grid['cp']}, tp {grid['tp']}"),
        ("Geometry", tuned["geometry"]),
        ("Version", tuned["version"]),
    ]
    cards = [
        Card(str(len(lengths)), "prompts", f"{min(lengths)} to {max(lengths)} tokens"),
        Card(str(len(tuned["samples"])), "samples", "with sparse attention"),
    ]
    return render_page(
        title=f"{path.name} · {Path(tuned['model']['path']).name}",
        status="What pecia tune measured of sparse attention.",
        written=path.stat().st_mtime,
        cards=cards,
        facts=facts,
        found=found,
    )
