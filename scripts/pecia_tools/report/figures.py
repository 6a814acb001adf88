# SPDX-License-Identifier: Apache-2.0
"""The figures of a run's report, one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..runs.folder import Rank, Turns
from ..runs.throughput import Throughput
from ..runs.trace import KINDS, PHASES, Layer, LayerSpan, Trace
from ..runs.yields import PLACES, Yields
from .numbers import plural, tick_count, tick_seconds
from .style import LIGHT, MANY_MARKS, axes, legend_above

FEW_RANKS = 8  # up to here each rank has a strip of its own
LYING_BARS = 16
MEDIAN_FROM = 40  # turns, from which on a median by length says something
KIND_WORDS = {"compute": "compute", "comm": "exposed communication", "idle": "idle"}
KIND_COLOURS = {"compute": LIGHT["blue"], "comm": LIGHT["orange"], "idle": LIGHT["grey"]}
PHASE_COLOURS = {"prefill": LIGHT["blue"], "mixed": LIGHT["purple"], "decode": LIGHT["green"]}
REQUEST_COLOURS = ("blue", "orange", "green", "purple")
LEVEL_COLOURS = ("blue", "green", "orange", "purple")  # of sparse attention, near to far
PLACE_COLOURS = (LIGHT["blue"], LIGHT["orange"], LIGHT["purple"])  # of PLACES
TEAM_STRENGTH = {"prefill": 0.95, "decode": 0.5, "holds": 0.2}
STEP_COLOURS = {
    "attention": LIGHT["blue"],
    "other compute": LIGHT["grey"],
    "wait for a transfer": LIGHT["orange"],
    "transfer, its wait included": LIGHT["purple"],
}


def throughput_figure(rates: Throughput) -> Figure:
    figure, (above, below) = axes(3.4, rows=2, sharex=True)
    for axis, values, word, colour in (
        (above, rates.prefill, "prefill", LIGHT["blue"]),
        (below, rates.decode, "decode", LIGHT["green"]),
    ):
        axis.stairs(values, rates.edges_s, fill=True, color=colour, alpha=0.85)
        axis.set_ylabel(f"{word}\ntokens/s")
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.yaxis.set_major_formatter(FuncFormatter(tick_count))
    _time_axis(below, rates.edges_s[-1], "the first pass was planned")
    return figure


def latency_figure(turns: Turns) -> Figure:
    """Time to first token and mean time between tokens of each answered turn, by its prompt's length."""
    figure, (left, right) = axes(3.4, columns=2)
    length = np.maximum(turns.prompt_length, 1)
    for axis, seconds, title, colour in (
        (left, turns.ttft_s, "time to first token", LIGHT["blue"]),
        (right, turns.between_tokens_s(), "mean time between tokens", LIGHT["green"]),
    ):
        shown = turns.answered & (seconds > 0)
        _scatter_with_median(axis, length[shown], seconds[shown], colour)
        axis.set_title(title)
        axis.set_xlabel("prompt length in tokens")
    return figure


def rank_bars_figure(ranks: Sequence[Rank]) -> Figure:
    figure, axis = _bar_axis(ranks, "seconds")
    before = np.zeros(len(ranks))
    for kind, values in (
        ("compute", [rank.compute_s for rank in ranks]),
        ("comm", [rank.exposed_communication_s for rank in ranks]),
        ("idle", [rank.idle_s for rank in ranks]),
    ):
        _add_bars(axis, ranks, values, before, KIND_COLOURS[kind], KIND_WORDS[kind])
        before += values
    legend_above(axis)
    return figure


def memory_figure(ranks: Sequence[Rank]) -> Figure:
    figure, axis = _bar_axis(ranks, "GiB")
    gib = [rank.peak_rss_bytes / 2**30 for rank in ranks]
    _add_bars(axis, ranks, gib, np.zeros(len(ranks)), LIGHT["blue"], "")
    return figure


def timeline_figure(trace: Trace, start: Sequence[tuple[str, float]] = ()) -> Figure:
    """Shares of time by kind (full trace) or by phase (summary), of each rank. `start`: what the ranks did before the
    first pass, and for how many seconds."""
    if trace.is_full:
        shares, names, colours = trace.kinds, KINDS, KIND_COLOURS
    else:
        shares, names, colours = trace.phases, PHASES, PHASE_COLOURS
    if len(trace.ranks) > FEW_RANKS:
        return _timeline_images(trace, shares, names, colours, start)
    figure, strips = axes(0.6 + 0.55 * len(trace.ranks), rows=len(trace.ranks), sharex=True)
    edges = np.linspace(0, trace.end_s, shares.shape[2] + 1)
    for axis, rank, of in zip(strips, trace.ranks, shares):
        bottom = np.zeros(shares.shape[2])
        for row, name in enumerate(names):
            if not shares[:, row].any():
                continue
            top = bottom + of[row]
            axis.stairs(
                top,
                edges,
                baseline=bottom,
                fill=True,
                color=colours[name],
                label=KIND_WORDS.get(name, name),
            )
            bottom = top
        axis.set_ylim(0, 1)
        axis.set_yticks([])
        axis.tick_params(bottom=axis is strips[-1])
        axis.grid(False)
        axis.set_ylabel(f"rank {rank}", rotation=0, ha="right", va="center")
        _draw_start(axis, start, trace.end_s)
    _time_axis(strips[-1], trace.end_s, "the model was loaded")
    legend_above(strips[0])
    return figure


def teams_figure(spans: Sequence[dict[str, Any]]) -> Figure:
    """When each instance read prompts, made answers, or held keys for those that did; a colour for each request."""
    rows = sorted({(span["replica"], instance) for span in spans for instance in span["instances"]})
    row_of = {place: row for row, place in enumerate(rows)}
    figure, (axis,) = axes(0.9 + min(0.42 * len(rows), 6.5))
    boxes: dict[tuple[str, float], list] = {}
    for span in spans:
        colour = LIGHT[REQUEST_COLOURS[span["sequence"] % len(REQUEST_COLOURS)]]
        for place, instance in enumerate(span["instances"]):
            kind = "prefill" if span["phase"] == "prefill" else "decode"
            if place >= span["workers"]:
                kind = "holds"
            row = row_of[span["replica"], instance]
            corners = [
                (span["begin_s"], row - 0.4),
                (span["end_s"], row - 0.4),
                (span["end_s"], row + 0.4),
                (span["begin_s"], row + 0.4),
            ]
            boxes.setdefault((colour, TEAM_STRENGTH[kind]), []).append(corners)
    as_image = sum(map(len, boxes.values())) > MANY_MARKS
    for (colour, strength), corners in boxes.items():
        axis.add_collection(
            PolyCollection(
                corners, facecolor=colour, alpha=strength, linewidth=0, rasterized=as_image
            )
        )
    axis.set_ylim(len(rows) - 0.5, -0.5)
    replicas = len({replica for replica, _ in rows})
    if len(rows) <= LYING_BARS:
        names = [f"{replica} · {one}" if replicas > 1 else str(one) for replica, one in rows]
        axis.set_yticks(range(len(rows)), names)
    else:
        axis.yaxis.set_major_locator(MaxNLocator(16, integer=True))
    axis.set_ylabel("replica · instance" if replicas > 1 else "instance")
    axis.grid(False, axis="y")
    _time_axis(axis, max(span["end_s"] for span in spans), "the first pass was planned")
    handles = [
        Patch(color=LIGHT["blue"], alpha=TEAM_STRENGTH[kind], label=word)
        for kind, word in (("prefill", "reads"), ("decode", "answers"), ("holds", "holds keys"))
    ]
    axis.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2
    )
    return figure


def demand_figure(yields: Yields, end_s: float) -> Figure:
    """How many sequences have their keys in the cache, have them parked, or were forgotten."""
    figure, (axis,) = axes(2.2)
    times = np.append(yields.times_s, max(end_s, yields.times_s[-1]))
    counts = np.column_stack([yields.sequences, yields.sequences[:, -1]])
    axis.stackplot(
        times, counts, step="post", labels=PLACES, colors=PLACE_COLOURS, alpha=0.85, linewidth=0
    )
    axis.set_ylabel("sequences")
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    _time_axis(axis, times[-1], "the model was loaded")
    return figure


def sparse_figure(sparse: dict[str, Any]) -> Figure:
    """What levels keep, and what they send and attend, beside dense attention."""
    levels = sparse["levels"]
    colours = [LIGHT[LEVEL_COLOURS[i % len(LEVEL_COLOURS)]] for i in range(len(levels))]
    figure, (kept, sent, work) = axes(1.3 + 0.2 * len(levels), columns=3)
    shares = [100 * (level["kept_share"] or 0) for level in levels]  # unknown of no tokens
    kept.barh(range(len(levels)), shares, 0.7, color=colours)
    names = [f"level {level['level']} · {_ranks(level)}" for level in levels]
    kept.set_yticks(range(len(levels)), names)
    kept.set_ylim(len(levels) - 0.5, -0.5)
    kept.set_xlim(0, 100)
    kept.set_title("tokens kept, %")
    unit, scale = _binary_unit(max(sparse["sent_bytes"], sparse["dense_sent_bytes"]))
    of_level = [(level["token_bytes"] + level["output_bytes"]) / scale for level in levels]
    _beside_dense(
        sent,
        [*zip(of_level, colours), (sparse["importance_bytes"] / scale, LIGHT["muted"])],
        sparse["dense_sent_bytes"] / scale,
    )
    sent.set_title(f"{unit} sent")
    of_level = [level["attention_pairs"] for level in levels]
    _beside_dense(work, list(zip(of_level, colours)), sparse["dense_attention_pairs"])
    work.xaxis.set_major_formatter(FuncFormatter(tick_count))
    work.set_title("pairs of query and key")
    for axis in (kept, sent, work):
        axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axis.grid(False, axis="y")
    handles = [Patch(color=LIGHT["grey"], label="dense")]
    if sparse["importance_bytes"]:
        handles.insert(0, Patch(color=LIGHT["muted"], label="weighing tokens"))
    figure.legend(handles=handles, loc="outside lower right", ncols=2)
    return figure


def _ranks(level: dict[str, Any]) -> str:
    return plural(level["ranks_per_segment"], "rank")


def _beside_dense(axis: Axes, parts: Sequence[tuple[float, str]], dense: float) -> None:
    """A bar of parts, with a grey one of dense attention below."""
    before = 0.0
    for value, colour in parts:
        axis.barh(0, value, 0.6, left=before, color=colour)
        before += value
    axis.barh(1, dense, 0.6, color=LIGHT["grey"])
    axis.set_yticks((0, 1), ("levels", "dense"))
    axis.set_ylim(1.6, -0.6)
    axis.set_xlim(0, 1.05 * max(before, dense) or 1)


def _binary_unit(most: float) -> tuple[str, int]:
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = next((i for i in range(len(units) - 1) if most < 1024 ** (i + 1)), len(units) - 1)
    return units[power], 1024**power


def layer_figure(layer: Layer) -> Figure:
    """One layer on the ranks of a replica: compute above, waits and transfers below, in each rank's row."""
    ranks = sorted({span.rank for span in layer.spans})
    begin = min(span.begin_s for span in layer.spans)
    end = max(span.end_s for span in layer.spans)
    unit, factor = ("ms", 1e3) if end - begin < 1 else ("s", 1)
    figure, (axis,) = axes(1.0 + min(0.42 * len(ranks), 6.5))
    boxes: dict[str, list] = {name: [] for name in STEP_COLOURS}
    row_of = {rank: row for row, rank in enumerate(ranks)}

    def add(what: str, span: LayerSpan, low: float, high: float) -> None:
        row = row_of[span.rank]
        left, right = factor * (span.begin_s - begin), factor * (span.end_s - begin)
        corners = [
            (left, row + low),
            (right, row + low),
            (right, row + high),
            (left, row + high),
        ]
        boxes[what].append(corners)

    for span in layer.spans:
        if span.kind == "comm":
            add("wait for a transfer", span, 0.08, 0.4)
        else:
            add("attention" if span.name == "attention" else "other compute", span, -0.4, 0.08)
    for span in ring_transfers(layer.spans):
        add("transfer, its wait included", span, 0.2, 0.28)
    as_image = sum(map(len, boxes.values())) > MANY_MARKS
    for what, corners in boxes.items():
        if corners:
            axis.add_collection(
                PolyCollection(
                    corners,
                    facecolor=STEP_COLOURS[what],
                    edgecolor=LIGHT["paper"] if len(ranks) <= FEW_RANKS else "none",
                    linewidth=0.3,
                    rasterized=as_image,
                    zorder=3 if what.startswith("transfer") else 2,
                )
            )
    axis.set_xlim(0, factor * (end - begin))
    axis.set_ylim(len(ranks) - 0.5, -0.5)
    axis.yaxis.set_major_locator(MaxNLocator(min(len(ranks), 16), integer=True))
    axis.yaxis.set_major_formatter(
        FuncFormatter(lambda row, _: str(ranks[int(row)]) if 0 <= row < len(ranks) else "")
    )
    axis.grid(False, axis="y")
    axis.set_ylabel("rank")
    axis.set_xlabel(f"{unit} since the layer's first span")
    handles = [Patch(color=STEP_COLOURS[what], label=what) for what in boxes if boxes[what]]
    axis.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2
    )
    return figure


def ring_transfers(spans: Sequence[LayerSpan]) -> list[LayerSpan]:
    """When the ring's transfers were under way: a step posts its transfer, computes attention, then waits for it, and
    the trace has only the wait. So from the beginning of that attention to the end of the wait."""
    transfers = []
    for rank in {span.rank for span in spans}:
        attention = None
        for span in sorted((s for s in spans if s.rank == rank), key=lambda s: s.begin_s):
            if span.name == "attention":
                attention = span
            elif span.name.startswith("ring_") and attention is not None:
                transfers.append(
                    LayerSpan(rank, span.name, span.kind, attention.begin_s, span.end_s, span.bytes)
                )
                attention = None
    return transfers


def _time_axis(axis: Axes, end_s: float, since: str) -> None:
    unit, per = next(
        (unit, per)
        for unit, per in (("hours", 3600), ("minutes", 60), ("seconds", 1))
        if end_s > 3 * per or per == 1
    )
    axis.set_xlim(0, end_s)
    axis.xaxis.set_major_locator(_Multiples(per))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / per:g}"))
    axis.set_xlabel(f"{unit} since {since}")


class _Multiples(MaxNLocator):
    """Round numbers of a unit that is `per` seconds long."""

    def __init__(self, per: int) -> None:
        super().__init__(12, steps=[1, 2, 5, 10])
        self._per = per

    def tick_values(self, low: float, high: float) -> np.ndarray:
        return super().tick_values(low / self._per, high / self._per) * self._per


def _scatter_with_median(axis: Axes, length: np.ndarray, seconds: np.ndarray, colour: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    if not len(length):
        axis.text(0.5, 0.5, "no turn has one", transform=axis.transAxes, ha="center")
        return
    many = len(length) > MANY_MARKS
    axis.scatter(
        length,
        seconds,
        s=4 if many else 26,
        alpha=0.25 if many else 0.75,
        color=colour,
        linewidths=0,
        rasterized=many,
    )
    if len(length) >= MEDIAN_FROM and length.max() > length.min():
        edges = np.geomspace(length.min(), length.max() * (1 + 1e-9), 13)
        which = np.digitize(length, edges) - 1
        bins = [row for row in range(12) if np.count_nonzero(which == row) >= 5]
        if len(bins) > 1:
            middle = np.sqrt(edges[:-1] * edges[1:])[bins]
            medians = [np.median(seconds[which == row]) for row in bins]
            axis.plot(middle, medians, color=LIGHT["ink"], linewidth=1.5, label="median")
            axis.legend(loc="upper left")
    _log_limits(axis.set_xlim, axis.xaxis, length, tick_count)
    _log_limits(axis.set_ylim, axis.yaxis, seconds, tick_seconds)


def _log_limits(
    set_limits: Callable[[float, float], object], axis: Axis, values: np.ndarray, text: Callable[[float], str]
) -> None:
    """At least a factor of four, with as many ticks as do not crowd."""
    low, high = values.min() / 1.25, values.max() * 1.25
    if high / low < 4:
        middle = np.sqrt(low * high)
        low, high = middle / 2, middle * 2
    set_limits(low, high)
    steps = (1, 1.5, 2, 3, 5, 7) if high / low < 12 else (1, 2, 5) if high / low < 400 else (1,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(text))


def _bar_axis(ranks: Sequence[Rank], unit: str) -> tuple[Figure, Axes]:
    """Bars lie while there is room for their ranks' hosts beside them, and stand when there are many."""
    if len(ranks) <= LYING_BARS:
        figure, (axis,) = axes(0.75 + 0.24 * len(ranks))
        axis.set_yticks(
            range(len(ranks)), [f"rank {rank.rank} · {_shortened(rank.host)}" for rank in ranks]
        )
        axis.set_ylim(len(ranks) - 0.4, -0.6)
        axis.set_xlabel(unit)
        axis.grid(False, axis="y")
    else:
        figure, (axis,) = axes(2.6)
        axis.set_xlim(-0.5, len(ranks) - 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(16, integer=True))
        axis.set_xlabel(f"rank ({plural(len({rank.host for rank in ranks}), 'host')})")
        axis.set_ylabel(unit)
        axis.grid(False, axis="x")
    return figure, axis


def _add_bars(
    axis: Axes,
    ranks: Sequence[Rank],
    values: Sequence[float],
    before: np.ndarray,
    colour: str,
    label: str,
) -> None:
    """Values that begin where those `before` end."""
    look = {"color": colour, "label": label}
    if len(ranks) <= LYING_BARS:
        axis.barh(np.arange(len(ranks)), values, 0.75, left=before, linewidth=0, **look)
    else:
        edges = np.arange(len(ranks) + 1) - 0.5
        axis.stairs(before + values, edges, baseline=before, fill=True, **look)


def _draw_start(axis: Axes, start: Sequence[tuple[str, float]], end_s: float) -> None:
    """Bands from the beginning on; one that is wide enough has its name."""
    wide = 0.06 * end_s
    begin = 0.0
    for name, seconds in start:
        axis.axvspan(
            begin, begin + seconds, facecolor="none", edgecolor=LIGHT["grey"], hatch="///", lw=0.5
        )
        if seconds > wide:
            middle = (begin + seconds / 2, 0.5)
            axis.annotate(name, middle, xycoords=("data", "axes fraction"), ha="center", va="center")
        begin += seconds


def _shortened(host: str) -> str:
    return host if len(host) <= 24 else host[:23] + "…"


def _timeline_images(
    trace: Trace,
    shares: np.ndarray,
    names: Sequence[str],
    colours: dict[str, str],
    start: Sequence[tuple[str, float]],
) -> Figure:
    """One image per kind, ranks downward: none of its colour for none of the time."""
    shown = [row for row in range(len(names)) if shares[:, row].any()]
    height = 0.8 + len(shown) * min(0.7 + 0.012 * len(trace.ranks), 2.2)
    figure, panels = axes(height, rows=len(shown), sharex=True)
    for axis, row in zip(panels, shown):
        colour = to_rgb(colours[names[row]])
        image = axis.imshow(
            shares[:, row],
            aspect="auto",
            extent=(0, trace.end_s, len(trace.ranks) - 0.5, -0.5),
            vmin=0,
            vmax=1,
            cmap=LinearSegmentedColormap.from_list("", [(*colour, 0.0), (*colour, 1.0)]),
            interpolation="nearest",
        )
        axis.set_title(KIND_WORDS.get(names[row], names[row]))
        axis.set_ylabel("rank")
        axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.tick_params(bottom=axis is panels[-1])
        axis.grid(False)
        _draw_start(axis, start, trace.end_s)
        bar = figure.colorbar(image, ax=axis, aspect=12, pad=0.01, ticks=(0, 0.5, 1))
        bar.ax.set_yticklabels(("0", "50 %", "100 %"))
        bar.outline.set_edgecolor(LIGHT["line"])
    _time_axis(panels[-1], trace.end_s, "the model was loaded")
    return figure
