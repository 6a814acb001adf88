# SPDX-License-Identifier: Apache-2.0
"""kernel-table LOG [LAUNCHES]: what each of our CUDA kernels takes, out of a build's output (ptxas -v): registers,
shared memory and spills. LAUNCHES is what test_kernels_emulated writes (PECIA_KERNEL_LAUNCHES): the blocks that kernels
are launched with. With it, the table also has how many of them a multiprocessor has room for. Exit code 1: a kernel
spills or waits for each of its products by wgmma, a block has no room, or the log has no kernels.

Kernels of libraries that are compiled with ours (CUB) are left out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from .occupancy import blocks_of_multiprocessor

OURS = "pecia::kernels::cuda::"
# What is launched only where a GPU's blocks may have as much shared memory.
ASK_FOR_ROOM = re.compile(r"expert_(gate|down)_tiles_kernel")


@dataclass(frozen=True)
class Launch:
    threads: int
    dynamic_bytes: int  # of shared memory


# What no emulated test launches; kernels/cuda/experts/cutlass_grouped_matmul.cu asserts these bytes.
OF_LIBRARIES = {
    "cutlass::device_kernel<GroupedProducts>": {Launch(384, 215552)},
    "cutlass::device_kernel<GroupedGates>": {Launch(384, 231936)},
    "cutlass::device_kernel<GroupedCodeProducts>": {Launch(384, 216576)},
    "cutlass::device_kernel<GroupedCodeGates>": {Launch(384, 216320)},
}


@dataclass(frozen=True)
class Kernel:
    name: str  # mangled
    architecture: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int

    def blocks(self, launch: Launch) -> int:
        shared_bytes = self.shared_bytes + launch.dynamic_bytes
        return blocks_of_multiprocessor(self.architecture, self.registers, shared_bytes, launch.threads)


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


def serialized(text: str) -> list[str]:
    """Kernels whose products by wgmma wait for each other, as ptxas found. Their names are mangled."""
    return re.findall(r"wgmma\.mma_async instructions are serialized .*in the function '(\w+)'", text)


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


def launches(file: Path) -> dict[str, set[Launch]]:
    """By the kernels' readable names: the emulator's and CUDA's compilers mangle some of them differently. Raises
    ValueError where a program was built again after it wrote the file, as its kernels then lie elsewhere.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    names: dict[tuple[str, int], str] = {}
    for program in sorted({line.split()[0] for line in lines}):
        if Path(program).stat().st_mtime > file.stat().st_mtime:
            raise ValueError(f"{program} is newer than {file}; run it again")
        symbols = subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout
        code = [line.split() for line in symbols.splitlines() if re.match(r"[0-9a-f]+ [tTwW] ", line)]
        for readable_name, (offset, _, _) in zip(readable([name for _, _, name in code]), code):
            names[program, int(offset, 16)] = short(readable_name)
    found: dict[str, set[Launch]] = defaultdict(set)
    for line in lines:
        program, offset, threads, dynamic_bytes = line.split()
        found[names[program, int(offset, 16)]].add(Launch(int(threads), int(dynamic_bytes)))
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: kernel-table LOG [LAUNCHES]", file=sys.stderr)
        return 2
    log = Path(arguments[0]).read_text(encoding="utf-8")
    ours = [kernel for kernel in kernels(log) if is_ours(kernel)]
    if not ours:
        print("kernel-table: the log has no kernels; was everything built before?", file=sys.stderr)
        return 1
    try:
        launched = launches(Path(arguments[1])) if len(arguments) == 2 else {}
    except (OSError, ValueError) as error:
        print(f"kernel-table: {error}", file=sys.stderr)
        return 1
    launched |= OF_LIBRARIES
    without_room = without_launch = 0
    print("| kernel | for | registers | shared bytes | stack | spills | threads | dynamic bytes | blocks |")
    print("|---|---|---|---|---|---|---|---|---|")
    names = [short(name) for name in readable([kernel.name for kernel in ours])]
    for name, kernel in sorted(zip(names, ours), key=lambda pair: pair[0]):
        print(
            f"| `{name}` | {kernel.architecture} | {kernel.registers} | {kernel.shared_bytes} | "
            f"{kernel.stack_bytes} | {kernel.spill_bytes} | ",
            end="",
        )
        if name not in launched:
            print("– | – | – |")
            without_launch += 1
            continue
        # The launch with the fewest warps on a multiprocessor says what may go wrong.
        launch = min(launched[name], key=lambda one: (kernel.blocks(one) * one.threads, -one.threads))
        print(f"{launch.threads} | {launch.dynamic_bytes} | {kernel.blocks(launch)} |")
        without_room += kernel.blocks(launch) == 0 and not ASK_FOR_ROOM.search(name)
    spilling = sum(kernel.spill_bytes > 0 for kernel in ours)
    print(f"kernel-table: {len(ours)} kernels, {spilling} of them spill", file=sys.stderr)
    waiting = readable(serialized(log))
    for name in waiting:
        print(f"kernel-table: {short(name)} waits for each of its products by wgmma", file=sys.stderr)
    if len(arguments) == 2:
        print(
            f"kernel-table: {without_launch} of them are launched by no emulated test, and {without_room} have "
            "launches whose blocks a multiprocessor has no room for",
            file=sys.stderr,
        )
    return 1 if spilling or waiting or without_room else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
