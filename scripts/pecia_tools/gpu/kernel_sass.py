# SPDX-License-Identifier: Apache-2.0
"""kernel-sass DUMP: whether our CUDA kernels have the instructions that make them fast, out of what `cuobjdump -sass`
prints of libpecia_kernels_cuda.a (`scripts/setup.sh cuda` gets cuobjdump). Exit code 1: a kernel lacks one, or the dump
has no kernel that a rule is about.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from .kernel_table import OURS, readable, short

INSTRUCTIONS = {
    "tensor cores": re.compile(r"\b(HMMA|[HQI]GMMA)\."),
    "wgmma": re.compile(r"\b[HQI]GMMA\."),
    "wgmma of fp8": re.compile(r"\bQGMMA\."),
    "loads by TMA": re.compile(r"\bUTMALDG\."),
    "stores by TMA": re.compile(r"\bUTMASTG\."),
    "matrices from shared memory": re.compile(r"\bLDSM\."),
    "asynchronous copies of 128 bits": re.compile(r"\bLDGSTS\.E\.\S*128"),
    "loads of 128 bits": re.compile(r"\bLDG?\.E\.\S*128"),  # LD: by an address from memory
    "stores of 128 bits": re.compile(r"\bSTG?\.E\.\S*128"),
}

# Patterns of the beginnings of kernels' names, and what each of these kernels must have. Those that take four elements
# of fp32 at a time load or store 128 bits. Invariant products copy 128 bits where rows are aligned. Products with codes
# load rows of x by 128 bits, and chunks of codes where these are aligned.
RULES: dict[str, tuple[str, ...]] = {
    "attention_mma_kernel<": ("tensor cores", "matrices from shared memory", "asynchronous copies of 128 bits"),
    "coded_few_rows_kernel<": ("tensor cores", "loads of 128 bits"),
    "gated_linear_kernel<": ("tensor cores", "loads of 128 bits"),
    "expert_gate_kernel<": ("tensor cores", "loads of 128 bits"),
    "expert_down_kernel<": ("tensor cores", "loads of 128 bits"),
    "expert_gate_tiles_kernel<": (
        "tensor cores", "matrices from shared memory", "asynchronous copies of 128 bits"
    ),
    "expert_down_tiles_kernel<": (
        "tensor cores", "matrices from shared memory", "asynchronous copies of 128 bits"
    ),
    "sum_pairs_kernel<4": ("stores of 128 bits",),
    "sum_pairs_kernel<4, float": ("loads of 128 bits",),
    "place_rows_kernel": ("loads of 128 bits", "stores of 128 bits"),
    "widen_experts_kernel<": ("loads of 128 bits", "stores of 128 bits"),
    "linear_invariant_mma_kernel<": ("tensor cores", "matrices from shared memory"),
    "linear_invariant_mma_kernel<.*, true>": ("asynchronous copies of 128 bits",),
    "add_kernel<4": ("loads of 128 bits", "stores of 128 bits"),
    "attention_fold_kernel<": ("stores of 128 bits",),
    "attention_fold_kernel<.*, true>": ("loads of 128 bits",),
    "causal_conv_kernel<4": ("loads of 128 bits", "stores of 128 bits"),
    "column_sums_kernel<.*, 4>": ("loads of 128 bits",),
    "convert_kernel<4, float": ("loads of 128 bits",),
    "embedding_kernel<4": ("stores of 128 bits",),
    "gated_activation_kernel<[48]": ("loads of 128 bits",),
    "kv_store_kernel<4": ("loads of 128 bits",),
    "kv_store_scaled_kernel<4": ("loads of 128 bits",),
    "pick_rows_kernel": ("loads of 128 bits", "stores of 128 bits"),
    "quantize_rows_kernel<4, float": ("loads of 128 bits",),
    "quantize_rows_kernel<8": ("loads of 128 bits",),
    "recurrence_kernel<.*, true>": ("loads of 128 bits", "stores of 128 bits"),
    "rms_norm_kernel<(256|32), 4": ("loads of 128 bits",),
    "rope_kernel<4": ("loads of 128 bits",),
    "scale_products_kernel<4": ("loads of 128 bits", "stores of 128 bits"),
    "soft_cap_kernel<4": ("loads of 128 bits", "stores of 128 bits"),
    "sum_rows_kernel<4, float": ("loads of 128 bits", "stores of 128 bits"),
    "widen_codes_kernel<": ("stores of 128 bits",),
    "widen_codes_kernel<.*, true>": ("loads of 128 bits",),
    "xielu_kernel<4": ("loads of 128 bits",),
}
# What only code for a GPU can have; a dump without code for it has no kernel that these are about.
RULES_FOR: dict[str, dict[str, tuple[str, ...]]] = {
    "sm_90a": {
        "attention_wgmma_kernel<": ("wgmma", "asynchronous copies of 128 bits"),
        "cutlass::device_kernel<GroupedProducts": ("wgmma", "loads by TMA", "stores by TMA"),
        "cutlass::device_kernel<GroupedGates": ("wgmma", "loads by TMA", "stores by TMA"),
        "cutlass::device_kernel<GroupedCode(Products|Gates)": (
            "wgmma of fp8",
            "loads by TMA",
            "stores by TMA",
        ),
    }
}
# The few lines of a dump that say something.
TELLING = re.compile(r"code for |arch = |Function : |MMA\.|LDSM\.|LDGSTS|LDG?\.|STG?\.")


def kernels(lines: Iterable[str]) -> dict[tuple[str, str], set[str]]:
    """What each kernel has, by its mangled name and the architecture."""
    found: dict[tuple[str, str], set[str]] = {}
    architecture = ""
    has: set[str] = set()
    for line in filter(TELLING.search, lines):
        if match := re.match(r"\s*(?:code for|arch =) (sm_\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function : (\w+)", line):
            has = found.setdefault((match[1], architecture), set())
        else:
            has.update(name for name, pattern in INSTRUCTIONS.items() if pattern.search(line))
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: kernel-sass DUMP", file=sys.stderr)
        return 2
    with Path(arguments[0]).open(encoding="utf-8") as lines:
        found = kernels(lines)
    names = [short(name) for name in readable([name for name, _ in found])]
    looked_at = lacking = 0
    rules = dict(RULES)
    for architecture in {architecture for _, architecture in found}:
        rules |= RULES_FOR.get(architecture, {})
    unmet = set(rules)
    for name, ((_, architecture), has) in zip(names, found.items()):
        for pattern, wanted in rules.items():
            if not re.match(pattern, name):
                continue
            unmet.discard(pattern)
            looked_at += 1
            missing = [instruction for instruction in wanted if instruction not in has]
            lacking += bool(missing)
            if missing:
                print(f"{name} for {architecture} has no {', no '.join(missing)}")
    for pattern in sorted(unmet):
        print(f"there is no kernel {pattern}…> in {OURS}; was it renamed?")
    print(f"kernel-sass: {looked_at} rules of kernels, {lacking} of them not met", file=sys.stderr)
    return 1 if lacking or unmet else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
