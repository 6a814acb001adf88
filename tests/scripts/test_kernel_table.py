# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import io
import unittest

from pecia_tools import kernel_table
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
    def table(self, log: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = kernel_table.main([str(self.write("log", log))])
        return code, out.getvalue()

    def test_has_a_row_for_each_of_our_kernels(self) -> None:
        code, text = self.table(CLEAN + OF_CUB)
        self.assertEqual(code, 0)
        self.assertEqual(len(text.splitlines()), 3, text)
        self.assertRegex(text, r"add_kernel.* \| sm_90a \| 40 \| 2048 \| 0 \| 0 \| 51 \|")

    def test_fails_where_one_spills(self) -> None:
        code, text = self.table(CLEAN + SPILLS)
        self.assertEqual(code, 1)
        self.assertIn("| 12 |", text)

    def test_fails_where_nothing_was_compiled(self) -> None:
        self.assertEqual(self.table("ninja: no work to do.\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
