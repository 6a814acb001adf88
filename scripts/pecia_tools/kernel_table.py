# SPDX-License-Identifier: Apache-2.0
"""kernel-table LOG: what each of our CUDA kernels takes, out of a build's output (ptxas -v): registers, shared memory,
spills, and how many warps a multiprocessor then has room for. Exit code 1: a kernel spills, or the log has none.

Kernels of libraries that are compiled with ours (CUB) are left out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OURS = "pecia::kernels::cuda::"
REGISTERS_OF_MULTIPROCESSOR = 65536  # of compute capability 8.0 to 12.0
WARP = 32
REGISTER_UNIT = 8  # per thread, by which they are handed out
MOST_WARPS = 64


@dataclass(frozen=True)
class Kernel:
    name: str  # mangled
    architecture: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int

    def warps(self) -> int:
        """By registers alone; dynamic shared memory may leave room for fewer."""
        of_thread = -(-self.registers // REGISTER_UNIT) * REGISTER_UNIT
        return min(MOST_WARPS, REGISTERS_OF_MULTIPROCESSOR // (of_thread * WARP))


def kernels(text: str) -> list[Kernel]:
    found: dict[tuple[str, str], Kernel] = {}
    name = architecture = ""
    stack = spills = 0
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            name, architecture = match.groups()
            stack = spills = 0
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spills = int(match[1]), int(match[2]) + int(match[3])
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            kernel = Kernel(name, architecture, int(match[1]), int(shared[1]) if shared else 0, stack, spills)
            found[name, architecture] = kernel
            name = ""
    return list(found.values())


def readable(names: list[str]) -> list[str]:
    """Without arguments' types and our namespace; mangled where there is no c++filt."""
    if shutil.which("c++filt") is None:
        return names
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void ", "", name).replace(OURS, "") for name in text.splitlines()]


def short(name: str) -> str:
    depth = 0
    for at, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0 and at > 0 and not name.startswith("(anonymous", at):
            return name[:at]
    return name


def is_ours(kernel: Kernel) -> bool:
    return "pecia7kernels4cuda" in kernel.name and "N3cub" not in kernel.name


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: kernel-table LOG", file=sys.stderr)
        return 2
    ours = [kernel for kernel in kernels(Path(arguments[0]).read_text(encoding="utf-8")) if is_ours(kernel)]
    if not ours:
        print("kernel-table: the log has no kernels; was everything built before?", file=sys.stderr)
        return 1
    print("| kernel | for | registers | shared bytes | stack | spills | warps by registers |")
    print("|---|---|---|---|---|---|---|")
    for name, kernel in sorted(zip(readable([kernel.name for kernel in ours]), ours), key=lambda pair: pair[0]):
        print(
            f"| `{short(name)}` | {kernel.architecture} | {kernel.registers} | {kernel.shared_bytes} | "
            f"{kernel.stack_bytes} | {kernel.spill_bytes} | {kernel.warps()} |"
        )
    spilling = [kernel for kernel in ours if kernel.spill_bytes > 0]
    print(f"kernel-table: {len(ours)} kernels, {len(spilling)} of them spill", file=sys.stderr)
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
