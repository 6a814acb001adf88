# SPDX-License-Identifier: Apache-2.0
"""modes_report local|net|experts|layout FILE: tables of what bench-modes.sh and bench-layout.sh measured. A figure is
the median of its case.

modes_report layout-line MODE PHASE REPRODUCIBLE REPORT: a line for `layout` from a run's report.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..command import UserError, run

PROGRAM = "modes-report"
WARM_UP = 512  # tokens of the prompt that comes first
CLOSE = 0.05  # two ways that differ by less are equally good

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def mode(line: Line) -> str:
    """Of lines of bench_prefill and bench_decode: "1 rank × 2 threads", "CP 2 pass_kv", "SP 2 × TP 2 sp_tp"."""
    if line["ranks"] == 1:
        return f"1 rank × {line['threads']} threads"
    degrees, sharding = line["grid"].rsplit(", ", 1)
    name = " × ".join(part for part in degrees.split(" × ") if not part.endswith(" 1"))
    if "CP" in name:
        name += f" {line['ring']}"
    return name if sharding == "base" else f"{name} {sharding}"


def grouped(lines: Sequence[Line], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Line]]:
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault((*(line[key] for key in keys), mode(line)), []).append(line)
    return groups


def median(lines: Sequence[Line], key: str) -> float:
    return statistics.median(line[key] for line in lines)


def seconds(lines: Sequence[Line], key: str = "seconds") -> float:
    return statistics.median(line[key]["median"] for line in lines)


def bytes_cells(lines: Sequence[Line], tokens: int) -> list[str]:
    """Bytes for each token and layer, all ranks together: sent, and by a phantom of each."""
    first = lines[0]
    per = tokens * first["layers"]
    return [
        f"{first[key] / per:.1f}" for key in ("sent_bytes_of_layers", "expected_bytes_of_layers")
    ]


HEADS = ("tok/s", "each round", "share of 1 rank", "exposed comm %", "B/token/layer", "by phantom")


def rate_cells(lines: Sequence[Line], base: Sequence[Line] | None, tokens: int) -> list[str]:
    rate = median(lines, "tokens_per_s")
    share = f"{100 * rate / median(base, 'tokens_per_s'):.0f} %" if base else "–"
    exposed = f"{100 * median(lines, 'exposed_comm_share'):.1f}"
    each = ", ".join(f"{line['tokens_per_s']:.0f}" for line in lines)
    return [f"{rate:.0f}", each, share, exposed, *bytes_cells(lines, tokens)]


def alone(groups: dict[tuple[Any, ...], list[Line]], key: tuple[Any, ...]) -> list[Line] | None:
    for other, lines in groups.items():
        if other[:-1] == key[:-1] and lines[0]["ranks"] == 1:
            return lines
    return None


def prefills(lines: Sequence[Line]) -> None:
    groups = grouped(
        [line for line in lines if line["cached"] == 0 and line["tokens"] > WARM_UP],
        ("model", "tokens"),
    )
    rows = []
    for key, found in groups.items():
        model, tokens, name = key
        rows.append([model, str(tokens), name, *rate_cells(found, alone(groups, key), tokens)])
    show("Prefill", ("model", "tokens", "mode", *HEADS), rows)


def decodes(lines: Sequence[Line]) -> None:
    groups = grouped(lines, ("model", "context", "batch"))
    rows = []
    for key, found in groups.items():
        model, context, batch, name = key
        generated = batch * found[0]["runs"] * found[0]["steps"]
        cells = rate_cells(found, alone(groups, key), generated)
        rows.append([model, str(context), str(batch), name, *cells])
    show("Decode", ("model", "context", "batch", "mode", *HEADS), rows)


def winner(times: dict[str, float]) -> tuple[str, float]:
    """The faster of two, and how much longer the other takes."""
    (fast, a), (_, b) = sorted(times.items(), key=lambda item: item[1])
    return fast, b / a - 1


def judged(times: dict[str, float], lines: Sequence[Line]) -> tuple[list[str], bool]:
    """Cells from "faster" to "the rule is" for two ways timed side by side; and whether the rule failed in a case that
    matters."""
    fast, margin = winner(times)
    rules = sorted({line["rule"] for line in lines})
    if margin <= CLOSE:
        verdict = "within 5 %"
    elif rules == [fast]:
        verdict = "right"
    else:
        verdict = "wrong" if fast not in rules else "undecided"
    cells = [fast, f"{100 * margin:.0f} %", " or ".join(rules), verdict]
    return cells, verdict in ("wrong", "undecided")


def grid(lines: Sequence[Line]) -> None:
    """pass_kv against pass_q, and whether the rule names the faster one wherever that matters."""
    rows, wrong = [], 0
    cells = sorted({(line["tokens"], line["cached"]) for line in lines})
    for tokens, cached in cells:
        here = [line for line in lines if (line["tokens"], line["cached"]) == (tokens, cached)]
        times = {
            ring: seconds([line for line in here if line["ring"] == ring])
            for ring in ("pass_kv", "pass_q")
        }
        judgement, failed = judged(times, here)
        wrong += failed
        share = f"{100 * tokens / (tokens + cached):.0f} %"
        in_ms = [f"{1e3 * times[ring]:.0f}" for ring in times]
        rows.append([str(tokens), share, *in_ms, *judgement])
    if not rows:
        return
    show(
        "Partial prefill across slow links",
        (
            "new tokens",
            "miss rate",
            "pass_kv ms",
            "pass_q ms",
            "faster",
            "by",
            "rule B",
            "the rule is",
        ),
        rows,
    )
    names = ("ring_flops", "ring_bandwidth", "all_to_all_bandwidth")
    flops, ring, all_to_all = (median(lines, name) for name in names)
    print(
        f"\nRates that the rule took: {flops * 1e-9:.1f} GFLOP/s of attention, "
        f"{ring * 1e-6:.1f} MB/s round the ring, {all_to_all * 1e-6:.1f} MB/s all to all."
    )
    print(
        f"Cells that differ by more than 5 % and where the rule is not always right: {wrong} of {len(rows)}."
    )


def shifts(lines: Sequence[Line]) -> None:
    """Steps of base against steps of shift, and whether the rule names the faster one wherever that matters."""
    rows, wrong = [], 0
    for degrees in sorted({line["grid"].rsplit(", ", 1)[0] for line in lines}):
        of_grid = [line for line in lines if line["grid"].rsplit(", ", 1)[0] == degrees]
        for context, batch in sorted({(line["context"], line["batch"]) for line in of_grid}):
            here = [line for line in of_grid if (line["context"], line["batch"]) == (context, batch)]
            times = {}
            for sharding in ("base", "shift"):
                found = [line for line in here if line["grid"].endswith(f", {sharding}")]
                if found:
                    times[sharding] = seconds(found, "step_seconds")
            if len(times) != 2:
                continue
            judgement, failed = judged(times, here)
            wrong += failed
            in_ms = [f"{1e3 * value:.2f}" for value in times.values()]
            rows.append([degrees, str(context), str(batch), *in_ms, *judgement])
    if not rows:
        return
    show(
        "Decode steps in base and in shift",
        ("grid", "context", "batch", "base ms", "shift ms", "faster", "by", "rule", "the rule is"),
        rows,
    )
    print(
        f"\nCells that differ by more than 5 % and where the rule is not always right: {wrong} of {len(rows)}."
    )


def experts(lines: Sequence[Line]) -> None:
    """Experts cut over TP, or all on each rank of SP (EP 1), against experts dealt out over the ranks."""
    times: dict[tuple[str, str], dict[str, list[Line]]] = {}
    for line in lines:
        grid, _, ep = line["grid"].rsplit(", ", 1)[0].partition(" × EP ")
        case = (
            f"prefill of {line['tokens']}"
            if line["bench"] == "bench_prefill"
            else f"step of {line['batch']}"
        )
        times.setdefault((grid, case), {}).setdefault(f"EP {ep}" if ep else "EP 1", []).append(line)
    rows = []
    for (grid, case), ways in times.items():
        key = "seconds" if case.startswith("prefill") else "step_seconds"
        medians = {way: seconds(found, key) for way, found in ways.items()}
        fast, margin = winner(medians)
        in_ms = [f"{1e3 * medians[way]:.2f}" for way in ("EP 1", "EP 4")]
        rows.append([grid, case, *in_ms, fast, f"{100 * margin:.0f} %"])
    show(
        "Experts across slow links",
        ("grid", "case", "EP 1 ms", "EP 4 ms", "faster", "by"),
        rows,
    )


def collectives(lines: Sequence[Line]) -> None:
    times: dict[tuple[str, int], dict[str, list[float]]] = {}
    for line in lines:
        name, _, route = line["pattern"].partition(", ")
        if route:
            times.setdefault((name, line["bytes"]), {}).setdefault(route, []).append(
                line["seconds"]["median"]
            )
    rows = []
    for (name, size), routes in times.items():
        if len(routes) != 2:
            continue
        medians = {route: statistics.median(values) for route, values in routes.items()}
        fast, margin = winner(medians)
        rows.append(
            [
                name,
                str(size),
                *(f"{1e3 * medians[route]:.2f}" for route in ("flat", "by server")),
                fast,
                f"{100 * margin:.0f} %",
            ]
        )
    show(
        "Collectives across slow links",
        ("collective", "bytes", "flat ms", "by server ms", "faster", "by"),
        rows,
    )


def layout_line(mode: str, phase: str, reproducible: str, path: Path) -> Line:
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["counts"]["failed"] > 0 or report["counts"]["open"] > 0:
        raise UserError(f"{path}: the run has failed or open requests")
    return {
        "bench": "bench_layout",
        "mode": mode,
        "phase": phase,
        "reproducible": reproducible,
        "commit": report["build"]["commit"],
        "cpu": report["machine"]["cpu"],
        "tokens_per_s": report["phases"][phase]["tokens_per_s"],
    }


def layouts(lines: Sequence[Line]) -> None:
    """What `reproducible: layout` leaves of the speed, round by round."""
    rows = []
    for mode, phase in dict.fromkeys((line["mode"], line["phase"]) for line in lines):
        rates = {
            reproducible: [
                line["tokens_per_s"]
                for line in lines
                if (line["mode"], line["phase"], line["reproducible"]) == (mode, phase, reproducible)
            ]
            for reproducible in ("run", "layout")
        }
        ratios = [b / a for a, b in zip(rates["run"], rates["layout"], strict=True)]
        medians = [f"{statistics.median(found):.1f}" for found in rates.values()]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        rows.append([mode, phase, *medians, f"{statistics.median(ratios):.2f}", each])
    show(
        "The layout-invariant mode",
        ("mode", "phase", "run tok/s", "layout tok/s", "ratio", "each round"),
        rows,
    )


def main(arguments: list[str]) -> int:
    if len(arguments) == 5 and arguments[0] == "layout-line":
        _, mode, phase, reproducible, report = arguments
        print(json.dumps(layout_line(mode, phase, reproducible, Path(report))))
        return 0
    if len(arguments) != 2 or arguments[0] not in ("local", "net", "experts", "layout"):
        raise UserError(
            "usage: modes_report local|net|experts|layout FILE | "
            "modes_report layout-line MODE PHASE REPRODUCIBLE REPORT"
        )
    lines = read(Path(arguments[1]))
    if arguments[0] == "layout":
        layouts(lines)
        return 0
    if arguments[0] == "experts":
        experts(lines)
        return 0
    of = {
        name: [line for line in lines if line["bench"] == f"bench_{name}"]
        for name in ("prefill", "decode", "comm")
    }
    prefills([line for line in of["prefill"] if arguments[0] == "local" or line["tokens"] != 8192])
    decodes(of["decode"])
    shifts([line for line in of["decode"] if "SP 1 ×" not in line["grid"]])
    if arguments[0] == "net":
        grid([line for line in of["prefill"] if line["cached"] + line["tokens"] == 8192])
        collectives(of["comm"])
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
