# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import io
from unittest import mock

from pecia_tools.gpu import kernel_sass
from support import ScriptTest

# What add_kernel<4> and add_kernel<1> look like: 128 bits at a time, and 32.
WIDE = """\
	code for sm_90a
		Function : _ZN5pecia7kernels4cuda10add_kernelILi4EEEvNS1_6MatrixIKfEENS3_IfEE
        /*0200*/                   LDG.E.128 R4, desc[UR4][R2.64] ;     /* 0x0000000402047981 */
        /*0240*/                   STG.E.128 desc[UR4][R8.64], R4 ;     /* 0x0000000408007986 */
"""
NARROW = """\
		Function : _ZN5pecia7kernels4cuda10add_kernelILi1EEEvNS1_6MatrixIKfEENS3_IfEE
        /*0200*/                   LDG.E R4, desc[UR4][R2.64] ;         /* 0x0000000402047981 */
"""


class KernelSass(ScriptTest):
    def look(self, dump: str, rules_for: dict[str, dict[str, tuple[str, ...]]] | None = None) -> tuple[int, str]:
        out = io.StringIO()
        rules = {"add_kernel<4": ("loads of 128 bits", "stores of 128 bits")}
        with (
            mock.patch.object(kernel_sass, "RULES", rules),
            mock.patch.object(kernel_sass, "RULES_FOR", rules_for or {}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            code = kernel_sass.main([str(self.write("dump", dump))])
        return code, out.getvalue()

    def test_is_silent_where_every_kernel_has_what_it_should(self) -> None:
        self.assertEqual(self.look(WIDE + NARROW), (0, ""))

    def test_names_a_kernel_and_what_it_lacks(self) -> None:
        code, text = self.look(WIDE.replace("STG.E.128", "STG.E") + NARROW)
        self.assertEqual(code, 1)
        self.assertEqual(text, "add_kernel<4> for sm_90a has no stores of 128 bits\n")

    def test_fails_where_a_rule_is_about_no_kernel(self) -> None:
        code, text = self.look(NARROW)
        self.assertEqual(code, 1)
        self.assertIn("there is no kernel add_kernel<4", text)

    def test_asks_for_what_one_gpu_has_where_there_is_code_for_it(self) -> None:
        rules_for = {"sm_90a": {"add_kernel<1": ("wgmma", "loads by TMA")}}
        code, text = self.look(WIDE + NARROW, rules_for)
        self.assertEqual(code, 1)
        self.assertEqual(text, "add_kernel<1> for sm_90a has no wgmma, no loads by TMA\n")
        fast = NARROW + "  HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;\n  UTMALDG.2D [UR4], [UR6] ;\n"
        self.assertEqual(self.look(WIDE + fast, rules_for), (0, ""))
        self.assertEqual(self.look((WIDE + NARROW).replace("90a", "80"), rules_for), (0, ""))

    def test_knows_instructions_of_tensor_cores(self) -> None:
        found = kernel_sass.kernels(
            [
                "	code for sm_80",
                "		Function : a",
                "  HMMA.16816.F32.BF16 R12, R4, R2, R12 ;",
                "  LDSM.16.M88.4 R4, [R3] ;",
                "  LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64] ;",
            ]
        )
        wanted = {"tensor cores", "matrices from shared memory", "asynchronous copies of 128 bits"}
        self.assertEqual(found, {("a", "sm_80"): wanted})
