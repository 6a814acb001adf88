# SPDX-License-Identifier: Apache-2.0
"""Tables of what `bench job` measured. A figure is the median of its rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from operator import itemgetter

from .common import Line, show

START = {
    "launch_s": "mpirun until main",
    "mpi_s": "MPI",
    "read_job_s": "job file, grid, topology",
    "load_weights_s": "weights",
    "read_inputs_s": "inputs",
    "measure_s": "rates, from the cache of earlier runs",
    "open_results_s": "results file",
    "measure_peak_s": "measured peak",
    "foresee_s": "foreseen time",
    "schedule_s": "queue of requests",
    "first_token_s": "first pass until the first token",
}

Figure = Callable[[Line], float]


def of(lines: Sequence[Line], what: str) -> list[Line]:
    return [line for line in lines if line["what"] == what]


def cells(lines: Sequence[Line], figure: Figure, form: str) -> list[str]:
    """The median, and each round."""
    values = [figure(line) for line in lines]
    each = ", ".join(form.format(value) for value in values)
    return [form.format(statistics.median(values)), each]


def overheads(lines: Sequence[Line]) -> list[list[str]]:
    """Of the batch: trace and progress on against off, round by round; and what is not passes at all."""
    runs = {(line["round"], line["job_layer"]): line for line in of(lines, "batch")}
    on = [line for (_, job_layer), line in runs.items() if job_layer == "on"]
    share = "{:.2f} %"

    def more(line: Line) -> float:
        return 100 * (line["work_s"] / runs[line["round"], "off"]["work_s"] - 1)

    def part(name: str) -> Figure:
        return lambda line: 100 * line[name] / line["work_s"]

    return [
        ["summary trace and progress: on against off", *cells(on, more, share)],
        [
            "between passes: plans, results made durable, progress",
            *cells(on, part("between_passes_s"), share),
        ],
        ["after them: report, trace, end of MPI", *cells(on, part("closing_s"), share)],
    ]


def requests(lines: Sequence[Line]) -> list[list[str]]:
    """What a tiny request costs: the larger batch less the smaller, so that nothing of the end is in it."""
    pairs: dict[int, list[Line]] = {}
    for line in of(lines, "tiny"):
        pairs.setdefault(line["round"], []).append(line)
    both = [sorted(pair, key=lambda line: line["requests"]) for pair in pairs.values()]

    def each(name: str) -> list[str]:
        values = [
            1e6 * (many[name] - few[name]) / (many["requests"] - few["requests"])
            for few, many in both
        ]
        return [f"{statistics.median(values):.0f}", ", ".join(f"{value:.0f}" for value in values)]

    return [
        ["in all, its passes too", *each("work_s")],
        ["between passes", *each("between_passes_s")],
    ]


def starts(lines: Sequence[Line]) -> list[list[str]]:
    def milliseconds(name: str) -> Figure:
        return lambda line: 1e3 * line["startup"][name]

    on = [line for line in of(lines, "batch") if line["job_layer"] == "on"]
    parts = [[words, *cells(on, milliseconds(name), "{:.0f}")] for name, words in START.items()]
    total = cells(on, lambda line: 1e3 * sum(line["startup"][name] for name in START), "{:.0f}")
    first = cells(of(lines, "first"), lambda line: 1e3 * line["startup"]["measure_s"], "{:.0f}")
    return [
        *parts,
        ["mpirun until the first token", *total],
        ["rates, where no earlier run measured them", *first],
    ]


def ends(lines: Sequence[Line]) -> list[list[str]]:
    cases = (
        ("drain", "SIGTERM to all ranks until the end, code 75", "exit_s"),
        ("dead_rank", "kill -9 of a rank until it is named", "named_s"),
        ("dead_rank", "kill -9 of a rank until mpirun's end", "exit_s"),
        ("hung_rank", "SIGSTOP of a rank until it is named", "named_s"),
        ("hung_rank", "SIGSTOP of a rank until mpirun's end", "exit_s"),
    )
    rows = []
    for what, words, name in cases:
        found = of(lines, what)
        if what == "hung_rank":
            words += f", limits.silence {found[0]['silence_s']} s"
        rows.append([words, *cells(found, itemgetter(name), "{:.2f}")])
    return rows


def repeats(lines: Sequence[Line]) -> list[list[str]]:
    cases = (("drain", "SIGTERM"), ("dead_rank", "kill -9"), ("hung_rank", "SIGSTOP"))
    rows = []
    for what, words in cases:
        found = of(lines, what)
        tokens, each = cells(found, lambda line: line["repeated_tokens"], "{:.0f}")
        before, _ = cells(found, lambda line: line["before_tokens"], "{:.0f}")
        share, _ = cells(
            found, lambda line: 100 * line["repeated_tokens"] / line["needed_tokens"], "{:.1f} %"
        )
        rows.append([words, before, tokens, each, share])
    return rows


def tables(lines: Sequence[Line]) -> None:
    medians = ("median", "each round")
    show("Overhead, as a share of the batch's time", ("what", *medians), overheads(lines))
    show("A request of 2 + 1 tokens, µs", ("what", *medians), requests(lines))
    show("Start, ms", ("what", *medians), starts(lines))
    show("Signals and faults, s", ("what", *medians), ends(lines))
    show(
        "Tokens computed again by the run that goes on",
        ("after", "tokens before", "again", "each round", "share of the batch"),
        repeats(lines),
    )
