# SPDX-License-Identifier: Apache-2.0
"""How many blocks of a kernel a multiprocessor has room for, by the rules and limits of CUDA's cuda_occupancy.h (13.0)
and the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
PARTITIONS = 4  # of a multiprocessor; each has its own registers
REGISTERS_OF_PARTITION = 16384
REGISTER_UNIT = 256  # by which a warp gets registers
SHARED_UNIT_BYTES = 128
RESERVED_BYTES = 1024  # of shared memory, in each block


@dataclass(frozen=True)
class Multiprocessor:
    warps: int
    blocks: int
    shared_bytes: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(warps=64, blocks=32, shared_bytes=164 << 10),
    "sm_90": Multiprocessor(warps=64, blocks=32, shared_bytes=228 << 10),
    "sm_100": Multiprocessor(warps=64, blocks=32, shared_bytes=228 << 10),
    "sm_120": Multiprocessor(warps=48, blocks=24, shared_bytes=100 << 10),
}


def round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def blocks_of_multiprocessor(architecture: str, registers: int, shared_bytes: int, threads: int) -> int:
    """`registers` of a thread, `shared_bytes` of a block, static and dynamic; 0: such a block cannot be launched.
    `architecture` is sm_90 or sm_90a. Raises KeyError for one whose limits are not known here.
    """
    limits = MULTIPROCESSORS[architecture.rstrip("af")]
    warps = round_up(threads, WARP) // WARP
    warps_of_partition = REGISTERS_OF_PARTITION // round_up(registers * WARP, REGISTER_UNIT)
    by_registers = warps_of_partition * PARTITIONS // warps
    if warps_of_partition < round_up(warps, PARTITIONS) // PARTITIONS:  # what the hardware checks
        by_registers = 0
    by_shared = limits.shared_bytes // round_up(shared_bytes + RESERVED_BYTES, SHARED_UNIT_BYTES)
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared)
