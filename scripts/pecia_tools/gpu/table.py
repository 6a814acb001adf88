# SPDX-License-Identifier: Apache-2.0
"""gpu-table OUT: one page of what gpu-check.sh has measured, as OUT/table.md, which fits into apps/results/h100.md.

Reads OUT/steps.jsonl and OUT/results.jsonl as they are, also of a phase that was stopped. Needs Python alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Optional

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """The JSON objects of a file, without a last line that was cut short."""
    lines = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                value = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(value, dict):
                lines.append(value)
    return lines


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class Table:
    def __init__(self, results: list[Line]) -> None:
        self.results = results
        self.rows: list[tuple[str, str, str]] = []

    def add(self, what: str, figure: str, goal: str = "–") -> None:
        self.rows.append((what, figure, goal))

    def by_op(self, op: str) -> dict[str, Line]:
        return {line["shape"]: line for line in self.results if line.get("op") == op and "shape" in line}

    def add_floors(self) -> None:
        for line in self.results:
            if "attention_library" not in line:
                continue
            self.add("bf16 product 8192³", f"{line['product_flops'] / 1e12:.0f} TFLOP/s")
            self.add("copy within the GPU", f"{line['bandwidth'] / 1e12:.2f} TB/s")
            self.add("attention library", str(line["attention_library"]))
            if "expert_library" in line:
                self.add("expert library", str(line["expert_library"]))
            return

    def add_ops(self) -> None:
        torch = {**self.by_op("attention (torch)"), **self.by_op("linear (torch)")}
        own = {**self.by_op("attention (own)"), **self.by_op("experts (own)")}
        static = self.by_op("attention (static)")
        for op in ("attention", "linear", "experts"):
            for shape, line in self.by_op(op).items():
                figure = f"{milliseconds(line['median_s'])}, {percent(line['share_of_floor'])} of the floor"
                if shape in own:
                    figure += f"; own kernels {milliseconds(own[shape]['median_s'])}"
                if shape in static:
                    figure += f"; static graphs {milliseconds(static[shape]['median_s'])}"
                goal = "–"
                if shape in torch:
                    figure += f"; {percent(torch[shape]['median_s'] / line['median_s'])} of PyTorch's speed"
                    goal = "≥ 97 % of PyTorch" if op == "attention" else "–"
                self.add(f"{op}: {shape}", figure, goal)

    def add_models(self) -> None:
        for line in self.results:
            if line.get("bench") == "bench_prefill":
                goal = {8192: "≥ 55 % of peak", 32768: "≥ 63 % of peak"}.get(line["tokens"], "–")
                self.add(
                    f"prefill of {line['tokens']}: {line['model']}, weights {line['dtype']}",
                    f"{line['tokens_per_s']:.0f} tok/s, {percent(line['share_of_floor'])} of the product",
                    goal,
                )
            elif line.get("bench") == "bench_decode" and "step_seconds" in line:
                slow = line["graphs_made"] + line["graphs_piecemeal"]
                graphs = f"graphs made or missing {slow} of {line['graphs_launched'] + line['graphs_piecemeal']}"
                if line.get("why_no_graphs"):
                    graphs = f"no graphs: {line['why_no_graphs']}"
                self.add(
                    f"decode after {line['context']} ({line['lengths']}), batch {line['batch']}: {line['model']}, "
                    f"weights {line['dtype']}",
                    f"{milliseconds(line['step_seconds']['median'])}, {percent(line['share_of_floor'])} of the floor; "
                    f"{graphs}",
                    "≥ 80 % of the floor; ≤ 5 % of the graphs",
                )

    def median(self, bench: str, model: str, where: Line) -> Optional[float]:
        wanted = {"bench": bench, "model": model, "dtype": "auto", **where}
        for line in self.results:
            if all(line.get(key) == value for key, value in wanted.items()):
                return (line.get("seconds") or line["step_seconds"])["median"]
        return None

    def add_transformers(self) -> None:
        for line in self.results:
            if line.get("op") != "transformers":
                continue
            ours = self.median("bench_prefill", line["model"], {"tokens": line["tokens"]})
            if ours:
                self.add(
                    f"prefill of {line['tokens']} against transformers {line['transformers']} with sdpa",
                    f"{line['prefill_s'] / ours:.2f} × ({milliseconds(ours)}, {milliseconds(line['prefill_s'])})",
                    "≥ 1.3 ×",
                )
            ours = self.median("bench_decode", line["model"], {"context": line["tokens"], "batch": 1})
            if ours:
                self.add(
                    f"decode after {line['tokens']} against transformers",
                    f"{line['step_s'] / ours:.2f} × ({milliseconds(ours)}, {milliseconds(line['step_s'])})",
                    "≥ 1.3 ×",
                )


def page(steps: list[Line], results: list[Line]) -> str:
    begun = [step for step in steps if "gpu" in step]
    table = Table(results)
    table.add_floors()
    table.add_ops()
    table.add_models()
    table.add_transformers()
    commits = {line["commit"] for line in results if "commit" in line}
    lines = [
        f"### {begun[0]['gpu'] if begun else 'a GPU'}",
        "",
        f"`scripts/gpu-check.sh`, phases {', '.join(dict.fromkeys(step['phase'] for step in begun))}; "
        f"driver {begun[0]['driver'] if begun else 'unknown'}, {begun[0]['began'] if begun else 'unknown'}, "
        f"commit {', '.join(sorted(commits)) or 'unknown'}.",
        "",
    ]
    if table.rows:
        lines += ["| what | figure | goal |", "|---|---|---|"]
        lines += [f"| {what} | {figure} | {goal} |" for what, figure, goal in table.rows]
    else:
        lines.append("Nothing was measured.")
    lines += ["", "| phase | step | result |", "|---|---|---|"]
    for step in steps:
        if "step" in step:
            lines.append(f"| {step['phase']} | {step['step']} | {step['status']}, {step['seconds']} s |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: gpu-table OUT", file=sys.stderr)
        return 2
    out = Path(arguments[0])
    text = page(read_lines(out / "steps.jsonl"), read_lines(out / "results.jsonl"))
    (out / "table.md").write_text(text, encoding="utf-8")
    print(text, end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
