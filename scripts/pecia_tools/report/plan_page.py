# SPDX-License-Identifier: Apache-2.0
"""What pecia plan --json foresees, as one HTML page: when the batch ends, what that costs, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..command import UserError
from .numbers import count, duration, plural, size
from .page import Section, render_page
from .style import LIGHT, axes, legend_above
from .tables import Card, Table

SCHEMA = "pecia.plan/1"
COLOURS = ("blue", "orange", "green", "purple", "grey", "ink")
# Of a bar: what it shows of the phases of a plan.
PARTS = (
    ("prompts: products", "blue", ("prefill", "gemm_s")),
    ("prompts: attention", "green", ("prefill", "attention_s")),
    ("prompts: other", "purple", ("prefill", "other_s")),
    ("waiting for messages", "orange", ("prefill", "exposed_comm_s"), ("decode", "exposed_comm_s")),
    ("answers", "ink", ("decode", "gemm_s"), ("decode", "attention_s"), ("decode", "other_s")),
)
DEGREES = ("dp", "cp", "sp", "tp", "ep")


def check_plan(path: Path, plan: dict[str, Any]) -> None:
    if plan.get("schema") != SCHEMA or "batch" not in plan:
        raise UserError(f"{path} is no plan with times; write it with pecia plan --cluster … --json > {path.name}")
    if not played(plan):
        reasons = "; ".join(f"{each['ranks']} ranks: {each['why_not']}" for each in plan["plans"])
        raise UserError(f"{path} has no plan that fits ({reasons}); there is nothing to draw")


def played(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in plan["plans"] if each["fits"]]


def best_by_ranks(plans: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The first of each number of ranks: plans are sorted, the best first."""
    best: dict[int, dict[str, Any]] = {}
    for each in plans:
        best.setdefault(each["ranks"], each)
    return dict(sorted(best.items()))


def front(plans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The plans than which no other ends sooner and costs less, the soonest first."""
    found: list[dict[str, Any]] = []
    for each in sorted(plans, key=lambda plan: (plan["end_s"], plan["gpu_hours"])):
        if not found or each["gpu_hours"] < found[-1]["gpu_hours"]:
            found.append(each)
    return found


def grid(plan: dict[str, Any]) -> str:
    degrees = [f"{name.upper()} {plan['parallel'][name]}" for name in DEGREES if plan["parallel"].get(name, 1) > 1]
    return " × ".join(degrees) or "one rank"


def prefill(plan: dict[str, Any]) -> str:
    word = plan["parallel"]["prefill"]
    return "replicas alone" if word == "auto" else str(word)


def end_figure(plan: dict[str, Any]) -> Figure:
    """End over ranks for each way to read prompts, and what costs least for when it ends."""
    figure, (left, right) = axes(3.4, columns=2)
    plans = played(plan)
    for word, colour in zip(sorted({prefill(each) for each in plans}), COLOURS):
        of_mode = [each for each in plans if prefill(each) == word]
        best = best_by_ranks(of_mode)
        shown = {"color": LIGHT[colour], "marker": "o", "markersize": 4, "label": word}
        left.plot(list(best), [each["end_s"] for each in best.values()], linewidth=1, **shown)
        right.plot(
            [each["end_s"] for each in of_mode], [each["gpu_hours"] for each in of_mode], linestyle="", **shown
        )
    cheap = front(plans)
    right.step(
        [each["end_s"] for each in cheap],
        [each["gpu_hours"] for each in cheap],
        where="post",
        color=LIGHT["muted"],
        linewidth=1,
        zorder=0,
    )
    ranks = sorted({each["ranks"] for each in plans})
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xticks(ranks, [str(number) for number in ranks])
    ends = [each["end_s"] for each in best_by_ranks(plans).values()]
    left.set_yticks(ends, [duration(end) for end in ends])
    left.minorticks_off()
    if plan["knee"]:
        left.axvline(plan["knee"], color=LIGHT["muted"], linewidth=1, linestyle=":")
    left.set_title("end of the batch over ranks; dotted: the knee")
    right.set_title("GPU-hours over the end in s; line: nothing is better")
    left.legend(loc="best")
    return figure


def phases_figure(plan: dict[str, Any]) -> Figure:
    best = best_by_ranks(played(plan))
    figure, (axis,) = axes(1.5 + 0.45 * len(best))
    names = [f"{ranks} ranks: {grid(each)}" for ranks, each in best.items()]
    begin = [0.0] * len(best)
    for label, colour, *keys in PARTS:
        width = [sum(each["phases"][phase][part] for phase, part in keys) for each in best.values()]
        axis.barh(names, width, left=begin, height=0.6, color=LIGHT[colour], label=label)
        begin = [left + more for left, more in zip(begin, width)]
    for label, colour, key in (
        ("first touch of memory", "grey", "first_touch_s"),
        ("idle", "line", "idle_s"),
    ):
        width = [each["phases"].get(key, 0) for each in best.values()]
        if any(width):
            axis.barh(names, width, left=begin, height=0.6, color=LIGHT[colour], label=label)
        begin = [left + more for left, more in zip(begin, width)]
    axis.invert_yaxis()
    axis.set_xlabel("seconds of a replica")
    legend_above(axis, columns=3)
    return figure


def table(plan: dict[str, Any]) -> Table:
    rows = []
    for each in played(plan):
        memory = each["memory_bytes_per_rank"]
        ttft = max(request["ttft_s"] for request in each["requests"])
        rows.append(
            (
                str(each["ranks"]),
                grid(each),
                each["parallel"]["mode"],
                duration(each["end_s"]),
                f"{each['gpu_hours']:.2f}",
                duration(ttft),
                size(memory["program"] + memory["weights"] + memory["kv"] + memory["work"]),
                each["limit"],
            )
        )
    heads = ("ranks", "grid", "prefill + decode", "batch ends", "GPU-hours", "longest TTFT", "memory", "limit")
    return Table(heads, rows)


def without_room(plan: dict[str, Any]) -> list[Table]:
    rows = [
        (str(each["ranks"]), each["why_not"], each.get("would_fit") or "nothing that was tried")
        for each in plan["plans"]
        if not each["fits"]
    ]
    return [Table(("ranks", "why it does not fit", "would fit"), rows)] if rows else []


def job_line(plan: dict[str, Any]) -> str:
    parallel = plan["parallel"]
    keys = [key for key in (*DEGREES, "prefill", "ring", "decode", "shift_threshold") if key in parallel]
    return "parallel: {" + ", ".join(f"{key}: {parallel[key]}" for key in keys if parallel[key] != "auto") + "}"


def sections(plan: dict[str, Any]) -> list[Section]:
    left_out = plan["left_out"]
    caption = (
        f"Of {plural(plan['layouts'], 'legal layout')}, {left_out['slower']} cannot end before the best of their number"
        f" of ranks and {left_out['too_large']} do not fit; neither are drawn."
    )
    best = played(plan)[0]
    ready = f"The best in a job file: {job_line(best)}"
    return [
        Section("When the batch ends", "end", end_figure(plan), caption, [table(plan), *without_room(plan)]),
        Section("Where the time goes, in the best of each number of ranks", "phases", phases_figure(plan), ready),
    ]


def render(path: Path, plan: dict[str, Any], found: Sequence[Section]) -> str:
    best, batch = played(plan)[0], plan["batch"]
    facts = [("Model", plan["model"]["path"]), ("Cluster", plan["cluster"]["name"])]
    low, high = best["end_range_s"]
    cards = [
        Card(duration(best["end_s"]), "until the batch ends", f"between {duration(low)} and {duration(high)}"),
        Card(f"{best['gpu_hours']:.2f}", "GPU-hours", f"{plural(best['ranks'], 'rank')}, {grid(best)}"),
        Card(str(batch["requests"]), "requests", f"{count(batch['prompt_tokens'])} prompt tokens"),
    ]
    return render_page(
        title=f"{path.name} · {Path(plan['model']['path']).name}",
        status="What pecia plan foresees; nothing of it was measured.",
        written=path.stat().st_mtime,
        cards=cards,
        facts=facts,
        found=found,
    )
