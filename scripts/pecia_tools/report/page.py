# SPDX-License-Identifier: Apache-2.0
"""A run's report as sections, and these as one HTML page that needs nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from ..runs.folder import DONE, FAILED, OPEN, PARTIAL, Report, RunFolder
from ..runs.throughput import followup, throughput, why_unknown
from ..runs.trace import Trace
from ..runs.yields import Yields, read_yields
from . import figures as figures
from . import tables as tables
from .numbers import count, duration, plural, size
from .style import DARK, LIGHT, to_png, to_svg
from .tables import Card, Table

CONTROL = re.compile(r"[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FULL_TRACE = "recorded with report: {trace: full} in the job file."


@dataclass(frozen=True)
class Section:
    title: str
    name: str = ""  # of the figure, as in NAME.png
    figure: Optional[Figure] = None
    caption: str = ""  # or why there is no figure
    tables: Sequence[Table] = ()


def sections(run: RunFolder, trace: Optional[Trace]) -> list[Section]:
    found = [_throughput(run), _latency(run)]
    if run.report:
        found.append(_rank_bars(run.report))
    found.append(
        _timeline(run, trace) if trace else Section("Ranks over time", caption=_no_trace(run))
    )
    if run.report and run.report.document.get("elastic"):
        found.append(_teams(run.report.document["elastic"]))
    if trace and not trace.dropped and run.report and (run.report.document.get("kv") or {}).get("demand"):
        yields = read_yields(run.path / "trace", len(run.report.ranks))
        if yields:
            found.append(_demand(yields, trace.end_s))
    if run.report and run.report.document.get("sparse"):
        found.append(_sparse(run.report.document["sparse"]))
    if trace:
        found.append(_layer(trace))
    if run.report:
        found += [_stages(run.report), _links(run.report), _memory(run.report)]
        starts = tables.starts(run.report)
        if starts:
            caption = "The run was stopped and continued; what a start did is its own work alone."
            found.append(Section("Starts", caption=caption, tables=[starts]))
        start = tables.start(run.report)
        if start:
            caption = "Rank 0, from the program's start to the first pass."
            found.append(Section("Start", caption=caption, tables=[start]))
    else:
        found.append(
            Section(
                "Ranks, links, memory",
                caption="report.json has them; it is written when a run ends.",
            )
        )
    found.append(_failures(run))
    found += _cut(run)
    predictions = tables.predictions(run.report) if run.report else None
    if predictions:
        found.append(Section("Predicted and measured", tables=[predictions]))
    return found


def _throughput(run: RunFolder) -> Section:
    title = "Throughput over time"
    missing = why_unknown(run)
    if missing:
        return Section(title, caption=missing)
    caption = "Each turn's prompt is spread evenly from its first pass to its first token, its output from there on."
    if run.report is None:
        caption += " If the run was continued, its starts lie on top of one another."
    assert run.turns is not None  # else that is missing
    figure = figures.throughput_figure(throughput(run.turns, followup(run)))
    return Section(title, "throughput", figure, caption)


def _latency(run: RunFolder) -> Section:
    title = "Latency by prompt length"
    if run.turns is None:
        return Section(
            title, caption="The folder has no results.h5, which holds the times of each turn."
        )
    answered = int(run.turns.answered.sum())
    if not answered:
        return Section(title, caption="No turn has been answered yet.")
    caption = (
        f"{plural(answered, 'answered turn')}; time in the queue is not counted. "
        "Prompt length includes the earlier turns of a request."
    )
    note = run.report.document.get("ttft_note") if run.report else None
    if note:
        caption += f" {note}"
    return Section(title, "latency", figures.latency_figure(run.turns), caption)


def _rank_bars(report: Report) -> Section:
    caption = "In passes and between them; loading is not counted."
    return Section("Time of each rank", "ranks", figures.rank_bars_figure(report.ranks), caption)


def start_phases(report: dict[str, Any]) -> list[tuple[str, float]]:
    """What a run does between the loading of the model, when its trace begins, and its first pass."""
    startup = report.get("startup") or {}
    named = [(key.removesuffix("_s").replace("_", " "), s) for key, s in startup.items()]
    begin = next((i for i, (name, _) in enumerate(named) if name == "measure"), len(named))
    return named[begin:]


def _timeline(run: RunFolder, trace: Trace) -> Section:
    title = "Ranks over time"
    if not trace.kinds.any() and not trace.phases.any():
        return Section(title, caption="The trace has no spans.")
    bin_width = duration(trace.end_s / trace.kinds.shape[2])
    if trace.is_full:
        caption = f"Shares of {bin_width} each."
    else:
        caption = f"Shares of {bin_width} each, by phase. Compute, exposed communication and idle are {FULL_TRACE}"
    if trace.dropped:
        caption += f" {trace.dropped:,} spans and notes did not fit into the trace, which may be why it ends early."
    if run.report and len(trace.ranks) < len(run.report.ranks):
        caption += (
            f" trace/ has {len(trace.ranks)} of {plural(len(run.report.ranks), 'rank')}'s files."
        )
    start = start_phases(run.report.document) if run.report else []
    if start:
        phases = ", ".join(f"{name} {duration(seconds)}" for name, seconds in start)
        caption += f" Hatched is what comes before the first pass: {phases}."
    return Section(title, "timeline", figures.timeline_figure(trace, start), caption)


def _no_trace(run: RunFolder) -> str:
    if run.report is None:
        return "The folder has no trace, which is written when a run ends."
    if run.report.job.get("report", {}).get("trace") == "off":
        return "The job had report: {trace: off}; summary records phases, full every step."
    return "The folder has no trace/."


def _layer(trace: Trace) -> Section:
    title = "One layer, step by step"
    if trace.layer is None:
        return Section(title, caption=f"The trace has no single steps; they are {FULL_TRACE}")
    layer = trace.layer
    where = f"Layer {layer.layer} of the longest {layer.phase} pass (number {layer.number}), replica {layer.replica}."
    if figures.ring_transfers(layer.spans):
        where += (
            " A ring step posts its transfer, computes attention, then waits: a transfer is drawn from the beginning of"
            " its attention to the end of its wait, and only the wait costs time."
        )
    moved = sum(span.bytes for span in layer.spans if span.kind == "comm")
    if moved:
        where += f" Moved: {size(moved)}."
    figure = figures.layer_figure(layer)
    return Section(title, "layer", figure, where)


def _stages(report: Report) -> Section:
    caption = "All ranks together."
    return Section("Where the time went", tables=[tables.stages(report)], caption=caption)


def _teams(elastic: dict[str, Any]) -> Section:
    title = "Teams over time"
    table = tables.teams(elastic)
    timeline = elastic.get("timeline", {"spans": [], "least_s": 0})  # older runs have none
    if not timeline["spans"]:
        return Section(title, caption="No team made a pass.", tables=[table])
    caption = (
        "Each request has a colour, and neighbours may share one. Instances beside each other in the same colour are a "
        f"team. {plural(elastic['scale_downs'], 'prompt')} had more instances to read it than keep its keys."
    )
    if elastic.get("scale_ups"):
        caption += f" {plural(elastic['scale_ups'], 'team')} took in further instances for the answers."
    if elastic.get("shrinks"):
        caption += f" Answers left an instance {plural(elastic['shrinks'], 'time')} so that it could read prompts."
    if elastic.get("moved_tokens"):
        caption += f" {plural(elastic['moved_tokens'], 'token')} moved to other instances."
    if timeline["least_s"]:
        caption += f" What took less than {duration(timeline['least_s'])} is not drawn."
    return Section(title, "teams", figures.teams_figure(timeline["spans"]), caption, [table])


def _demand(yields: Yields, end_s: float) -> Section:
    caption = "Sequences that began and have not ended, of all replicas."
    for kind, what in (
        ("parked", "Keys were parked {}, and came back later"),
        ("moved", "Keys moved to another instance {}"),
        ("scaled up", "A sequence grew on a further instance {}"),
        ("forgotten", "A sequence was forgotten {}, and read its tokens again"),
    ):
        if yields.kinds[kind]:
            caption += f" {what.format(plural(yields.kinds[kind], 'time'))}."
    figure = figures.demand_figure(yields, end_s)
    return Section("Memory on demand", "demand", figure, caption)


def _sparse(sparse: dict[str, Any]) -> Section:
    title = "Sparse attention"
    if not sparse["passes"]:
        caption = "No pass was attended by levels: its ranks had too few tokens, or there was one."
        return Section(title, caption=caption)
    dense = (
        "Dense is Ulysses over the same ranks"
        if sparse["dense_sent_bytes"]
        else "The ranks share heads, so that dense attention sends nothing"
    )
    caption = (
        f"{plural(sparse['passes'], 'pass', 'passes')} with {plural(sparse['rows'], 'row')} of prompts, geometry"
        f" {sparse['geometry']}, drop {sparse['drop']:g}; bytes and pairs of all ranks. {dense},"
        " and a pair is a query of one head and a key."
    )
    if sparse["importance_bytes"]:
        caption += (
            f" To weigh the tokens, {size(sparse['importance_bytes'])} were sent, which are among the bytes, and"
            f" {count(sparse['importance_pairs'])} products of a query and a key made, which are not among the pairs."
        )
    shown = [
        tables.sparse_against_dense(sparse),
        tables.sparse_levels(sparse),
        tables.sparse_layers(sparse),
    ]
    return Section(title, "sparse", figures.sparse_figure(sparse), caption, shown)


def _links(report: Report) -> Section:
    title = "Bytes on the links"
    if not report.links:
        return Section(title, caption="Ranks sent nothing to one another.")
    compared = tables.declared(report)
    caption = "All ranks together."
    if compared.rows:
        caption += (
            " The passes count what their schedules send; the links also carry what is measured for"
            " automatic choices before the first pass."
        )
    found = [tables.links(report), *([compared] if compared.rows else [])]
    return Section(title, tables=found, caption=caption)


def _memory(report: Report) -> Section:
    peaks = [rank.peak_rss_bytes for rank in report.ranks]
    host = report.machine.get("memory_bytes_of_a_host")
    caption = f"Largest resident memory: {size(max(peaks))} on rank {report.ranks[peaks.index(max(peaks))].rank}"
    caption += f", {size(min(peaks))} at the least" if len(peaks) > 1 else ""
    caption += f"; a host has {size(host)}." if host else "."
    if len(peaks) > 1:
        caption += " Weights that several ranks of a host map are counted in each of them."
    figure = figures.memory_figure(report.ranks) if len(peaks) > 1 else None
    return Section("Memory", "memory", figure, caption)


def _failures(run: RunFolder) -> Section:
    title = "Failures"
    found = tables.failures(run)
    errors = list(run.report.errors) if run.report else []
    of_run = Table(("error of the run",), [(error,) for error in errors])
    if found is None:
        assert run.report is not None  # a folder has it or results.h5
        failed = run.report.counts["failed"]
        caption = (
            f"{plural(failed, 'turn')} failed; the reasons are in results.h5, which is not here."
        )
    elif found.rows:
        caption = "A failed turn ends alone; pecia run --retry-failed takes them again."
    else:
        caption = "No turn failed."
    shown = [table for table in (of_run, found) if table and table.rows]
    return Section(title, tables=shown, caption=caption)


def _cut(run: RunFolder) -> list[Section]:
    """Nothing where nothing was cut."""
    cut = tables.cut(run)
    parts = [f"{cut.answers}."] if cut.answers else []
    found = tables.truncated(run) if cut.turns else None
    if cut.turns:
        parts.insert(
            0, f"{plural(cut.turns, 'prompt')} longer than the model's length: limits.over_length"
        )
        parts[0] += f" left out {plural(cut.tokens, 'token')}."
    if not parts:
        return []
    return [Section("Cut to fit", caption=" ".join(parts), tables=[found] if found else [])]


def status(run: RunFolder) -> str:
    """How the run stands, in a sentence or two."""
    turns, report = run.turns, run.report
    if turns is None:
        return "results.h5 is not in this folder; what follows is of the run's last start alone."
    left = turns.number(OPEN) + turns.number(PARTIAL)
    finished = turns.number(DONE) + turns.number(FAILED)
    text = (
        "Finished." if left == 0 else f"Not finished: {plural(left, 'turn')} of {len(turns)} to do."
    )
    if report is None:
        return text + " report.json is not there: the run goes on, or was killed."
    of_report = report.counts["done"] + report.counts["failed"]
    left_then = report.counts["partial"] + report.counts["open"]
    if left_then != left:
        return text + " report.json is of an earlier start than results.h5."
    if of_report < finished:
        return text + (
            " The run had several starts: speeds, ranks and links are of the last one, which finished"
            f" {of_report:,} of the {finished:,} turns."
        )
    return text


def printable(value: object) -> object:
    """Without characters that no page may have, wherever they come from (ids, errors, host names)."""
    return value if isinstance(value, Markup) else CONTROL.sub("\ufffd", str(value))


def render(run: RunFolder, found: Sequence[Section]) -> str:
    job = json.dumps(run.report.job, indent=2, ensure_ascii=False) if run.report else ""
    places = tables.places(run.report) if run.report else None
    unknown = "Grid, machine and ranks are known when the run has ended: report.json has them."
    command = "A run folder does not keep the command that started it"
    facts = tables.what_ran(run)
    return render_page(
        title=f"{run.path.resolve().name} · {Path(dict(facts).get('Model', '')).name}",
        status=status(run),
        written=run.written,
        cards=tables.cards(run),
        facts=facts,
        found=found,
        places=places,
        notes=[
            *([] if places else [unknown]),
            command + ("; the job as run stands at the end." if job else "."),
        ],
        job=job,
    )


def render_page(
    title: str,
    status: str,
    written: float,
    cards: Sequence[Card],
    facts: Sequence[tuple[str, str]],
    found: Sequence[Section],
    places: Optional[Table] = None,
    notes: Sequence[str] = (),
    job: str = "",
) -> str:
    """`written`: seconds since 1970. `notes`: sentences below the facts."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = [
        (section, Markup(to_svg(section.figure, section.name, section.title)) if section.figure else "")
        for section in found
    ]  # fmt: skip
    return environment.get_template("page.html").render(
        title=title,
        status=status,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(written)),
        cards=cards,
        facts=facts,
        places=places,
        notes=notes,
        sections=drawn,
        job=job,
        light=LIGHT,
        dark=DARK,
    )


def write_pngs(found: Sequence[Section], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [section for section in found if section.figure]
    for section in drawn:
        to_png(section.figure, folder / f"{section.name}.png")
    return len(drawn)
