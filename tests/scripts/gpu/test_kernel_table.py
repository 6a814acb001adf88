# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess

from pecia_tools.gpu import kernel_table
from pecia_tools.gpu.occupancy import blocks_of_multiprocessor
from support import ScriptTest

CLEAN = """\
[1/2] Building CUDA object add.cu.o
ptxas info    : Compiling entry function '_ZN5pecia7kernels4cuda10add_kernelILi4EEEvNS1_6MatrixIKfEE' for 'sm_90a'
ptxas info    : Function properties for _ZN5pecia7kernels4cuda10add_kernelILi4EEEvNS1_6MatrixIKfEE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem
"""
SPILLS = CLEAN.replace("10add_kernel", "10sub_kernel").replace("0 bytes spill loads", "12 bytes spill loads")
OF_CUB = SPILLS.replace("_ZN5pecia7kernels4cuda", "_ZN3cub6kernelN5pecia7kernels4cuda")


class KernelTable(ScriptTest):
    def table(self, log: str, launches: str = "") -> tuple[int, str]:
        out = io.StringIO()
        files = [str(self.write("log", log))] + ([str(self.write("launches", launches))] if launches else [])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = kernel_table.main(files)
        return code, out.getvalue()

    def program(self, name: str = "add_kernel") -> tuple[str, str]:
        """One with add_kernel<4>, or one of another name, and that kernel's offset in it."""
        source = (
            "namespace pecia::kernels::cuda { template <typename T> struct Matrix {}; template <int N> __attribute__"
            f"((noinline)) void {name}(Matrix<const float>) {{}} template void {name}<4>(Matrix<const float>); }}"
        )
        object_file = str(self.write("add.cpp", source)).replace(".cpp", ".o")
        subprocess.run(["c++", "-c", object_file.replace(".o", ".cpp"), "-o", object_file], check=True)
        symbols = subprocess.run(["nm", object_file], capture_output=True, text=True, check=True).stdout
        return object_file, re.search(rf"(\w+) W .*{name}", symbols)[1]

    def test_has_a_row_for_each_of_our_kernels(self) -> None:
        code, text = self.table(CLEAN + OF_CUB)
        self.assertEqual(code, 0)
        self.assertEqual(len(text.splitlines()), 3, text)
        self.assertRegex(text, r"add_kernel.* \| sm_90a \| 40 \| 2048 \| 0 \| 0 \| – \| – \| – \|")

    def test_says_how_many_blocks_have_room_of_the_launch_that_leaves_most_idle(self) -> None:
        program, offset = self.program()
        launches = f"{program} {offset} 128 0\n{program} {offset} 256 60000\n"
        code, text = self.table(CLEAN, launches)
        self.assertEqual(code, 0)
        self.assertIn("| 2048 | 0 | 0 | 256 | 60000 | 3 |", text)

    def test_fails_where_a_block_has_no_room(self) -> None:
        program, offset = self.program()
        launches = f"{program} {offset} 128 {101 << 10}\n"
        self.assertEqual(self.table(CLEAN, launches)[0], 0)
        self.assertEqual(self.table(CLEAN.replace("sm_90a", "sm_120"), launches)[0], 1)

    def test_lets_kernels_be_without_room_that_are_launched_only_where_they_have_it(self) -> None:
        name = "expert_down_tiles_kernel"
        program, offset = self.program(name)
        log = CLEAN.replace("10add_kernel", f"{len(name)}{name}").replace("sm_90a", "sm_120")
        code, text = self.table(log, f"{program} {offset} 128 {101 << 10}\n")
        self.assertEqual(code, 0)
        self.assertIn(f"| 128 | {101 << 10} | 0 |", text)

    def test_refuses_launches_that_are_older_than_their_program(self) -> None:
        program, offset = self.program()
        os.utime(program, (2e9, 2e9))
        self.assertEqual(self.table(CLEAN, f"{program} {offset} 128 0\n"), (1, ""))

    def test_fails_where_one_spills(self) -> None:
        code, text = self.table(CLEAN + SPILLS)
        self.assertEqual(code, 1)
        self.assertIn("| 12 |", text)

    def test_fails_where_one_waits_for_its_products(self) -> None:
        waits = (
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
            "wgmma pipeline crossing function boundary at a function call in the function '_ZN5pecia3addEv'\n"
        )
        self.assertEqual(self.table(CLEAN + waits)[0], 1)

    def test_knows_the_blocks_of_kernels_that_a_library_launches(self) -> None:
        name = "_ZN7cutlass13device_kernelIN5pecia7kernels4cuda12GroupedGatesEEEvNT_6ParamsE"
        log = re.sub(r"_ZN5pecia\w+", name, CLEAN).replace("40 registers", "168 registers").replace("2048", "0")
        code, text = self.table(log)
        self.assertEqual(code, 0)
        self.assertIn("| 168 | 0 | 0 | 0 | 384 | 231936 | 1 |", text)

    def test_fails_where_nothing_was_compiled(self) -> None:
        self.assertEqual(self.table("ninja: no work to do.\n")[0], 1)

    def test_blocks_are_those_of_cudas_own_rules(self) -> None:
        # What cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0 says: registers, shared bytes, threads.
        for architecture, registers, shared_bytes, threads, blocks in (
            ("sm_80", 16, 0, 32, 32),
            ("sm_80", 204, 0, 128, 2),
            ("sm_90", 40, 0, 256, 6),
            ("sm_90a", 168, 70000, 128, 3),
            ("sm_100", 128, 200000, 64, 1),
            ("sm_120", 16, 0, 32, 24),
            ("sm_120", 40, 49152, 128, 2),
            ("sm_120", 40, 102400, 128, 0),
            ("sm_90", 72, 0, 1024, 0),
        ):
            with self.subTest(f"{architecture} {registers} {shared_bytes} {threads}"):
                self.assertEqual(blocks_of_multiprocessor(architecture, registers, shared_bytes, threads), blocks)
