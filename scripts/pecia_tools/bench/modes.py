# SPDX-License-Identifier: Apache-2.0
"""Times every parallel mode, in turn; a figure is the median of its case.
  local    two ranks of one thread in each mode beside one rank of two threads
  net      four ranks on four servers in two racks with slow links between them, made of network namespaces; needs root
  experts  a mixture of experts on the same four servers, with experts cut over ranks and dealt out over them
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import rule_c
from .common import (
    BIN,
    SERVERS,
    Line,
    Work,
    bench_model,
    bench_parser,
    enter_network,
    mpirun,
    on_this_machine,
    show,
)

NODE_MBIT, RACK_MBIT = 1000, 400
WARM_UP = 512  # tokens of the prompt that comes first
PREFILLS = (
    *("--ring pass_kv", "--sp 2", "--ring pass_q"),
    *("--tp 2", "--tp 2 --sharding sp_tp", "--tp 2 --sharding gathered"),
)
DECODES = ("--ring pass_q", "--ring broadcast_q", "--sp 2", "--tp 2", "--sp 2 --sharding shift")
CLOSE = 0.05  # two ways that differ by less are equally good

def mode(line: Line) -> str:
    """Of lines of pecia-bench prefill and decode: "1 rank × 2 threads", "CP 2 pass_kv", "SP 2 × TP 2 sp_tp"."""
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
    rows, wrong, measured = [], 0, []
    cells = sorted({(line["tokens"], line["cached"]) for line in lines})
    for tokens, cached in cells:
        here = [line for line in lines if (line["tokens"], line["cached"]) == (tokens, cached)]
        times = {
            ring: seconds([line for line in here if line["ring"] == ring])
            for ring in ("pass_kv", "pass_q")
        }
        measured.append(rule_c.Cell(tokens, cached, times["pass_kv"], times["pass_q"]))
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
    print(rule_c.in_words(measured))


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


def tables(where: str, lines: Sequence[Line]) -> None:
    if where == "experts":
        experts(lines)
        return
    of = {
        name: [line for line in lines if line["bench"] == f"bench_{name}"]
        for name in ("prefill", "decode", "comm")
    }
    prefills([line for line in of["prefill"] if where == "local" or line["tokens"] != 8192])
    decodes(of["decode"])
    shifts([line for line in of["decode"] if "SP 1 ×" not in line["grid"]])
    if where == "net":
        grid([line for line in of["prefill"] if line["cached"] + line["tokens"] == 8192])
        collectives(of["comm"])


class Modes:
    def __init__(self, where: str, work: Work) -> None:
        self.where, self.work = where, work
        self.hosts = "" if where == "local" else ",".join(SERVERS)

    def one(self, name: str, model: Path, words: str, ranks: int = 4) -> None:
        self.work.note(f"{ranks} × {name} {model.name} {words}")
        of_model = ["--model", model] if name != "comm" else []
        hosts = "n1:2,n3:2" if name == "comm" else self.hosts
        self.work.keep(self.work.bench(ranks, name, *of_model, *words.split(), hosts=hosts))

    def on_two(self, name: str, model: Path, words: str, modes: Sequence[str]) -> None:
        """One rank of two threads, then two of one in each mode."""
        self.one(name, model, f"{words} --threads 2", ranks=1)
        for mode in modes:
            self.one(name, model, f"{words} --threads 1 {mode}", ranks=2)

    def local(self, layers_24: Path, layers_2: Path) -> None:
        for model, tokens, runs in (
            (layers_24, "2048,8192", 1),
            (layers_2, "8192", 6),  # short, so that other work on the machine disturbs few of the runs
            (layers_2, "32768", 1),
        ):
            # The shortest prompt warms up for the others.
            words = f"--tokens {WARM_UP},{tokens} --warmups 0 --runs {runs}"
            self.on_two("prefill", model, words, PREFILLS[:2] if tokens == "32768" else PREFILLS)
        words = "--contexts 2048 --batches 1,8,32 --steps 4 --runs 3"
        self.on_two("decode", layers_24, words, DECODES)

    def net(self, model: Path) -> None:
        new = "82,164,410,819,1638,2458,4096,6144,8192"  # 1 to 100 % of 8192
        for ring in ("pass_kv", "pass_q"):
            words = f"--threads 1 --tokens {new} --total 8192 --batch-tokens 8192 --ring {ring} --runs 3"
            self.one("prefill", model, words)
        for sharing in ("--tp 4", ""):
            self.one("prefill", model, f"--threads 1 --tokens 2048,4096 --runs 2 {sharing}")
        for ring in ("pass_q", "broadcast_q"):
            words = f"--threads 1 --contexts 2048 --batches 1,8,32 --ring {ring} --runs 3"
            self.one("decode", model, words)
        self.one("decode", model, "--threads 1 --contexts 2048 --batches 1,8 --ring pass_kv --steps 4 --runs 3")
        for sharding in ("base", "shift"):
            words = f"--threads 1 --contexts 512 --batches 1,2,4,8,16,32,64 --sp 4 --sharding {sharding} --runs 3"
            self.one("decode", model, words)
        words = "--min-bytes 16KiB --max-bytes 1MiB --overlap-from 1GiB --threads 1 --runs 3"
        self.one("comm", model, words)

    def experts(self, model: Path) -> None:
        for degrees in ("--tp 4", "--tp 4 --ep 4", "--sp 4", "--sp 4 --ep 4"):
            self.one("prefill", model, f"--threads 1 --tokens 512,2048 --runs 3 {degrees}")
            self.one("decode", model, f"--threads 1 --contexts 512 --batches 1,8,32,128 --runs 3 {degrees}")

    def describe(self) -> None:
        """The cluster file that a plan foresees the same cases with."""
        topology = (BIN / "pecia", "topology", "--measure", "--cluster-file", self.work.folder / "cluster.yaml")
        launch = [*mpirun(4, self.hosts), "-x", "OMP_NUM_THREADS"]
        self.work.logged(*launch, *topology, env={"OMP_NUM_THREADS": "1"})


def main(arguments: list[str]) -> int:
    places = ("local", "net", "experts")
    options = bench_parser("modes", __doc__, "local --rounds 1", rounds=2, where=places).parse_args(arguments)
    if options.where == "local":
        on_this_machine()
    else:
        enter_network(options.where, NODE_MBIT, RACK_MBIT)
    work = Work(f"modes-{options.where}", options.json)
    work.build("pecia-bench", "pecia")
    modes = Modes(options.where, work)
    shapes: dict[str, dict[str, int]] = {
        "local": {"bench-111m": {"layers": 24, "ffn": 2048}, "bench-2-layers": {"layers": 2, "ffn": 2048}},
        "net": {"bench-2-layers": {"layers": 2, "ffn": 2048}},
        "experts": {"bench-moe-2-layers": {"layers": 2, "ffn": 512, "experts": 16, "experts_per_token": 4}},
    }[options.where]
    models = [bench_model(name, **shape) for name, shape in shapes.items()]
    for _ in work.rounds(options.rounds):
        getattr(modes, options.where)(*models)
    if options.where == "experts":
        modes.describe()
    tables(options.where, work.lines)
    return 0
