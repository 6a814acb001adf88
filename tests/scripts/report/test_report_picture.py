# SPDX-License-Identifier: Apache-2.0
import numpy as np
from PIL import Image

from pecia_tools.dev import report_picture
from run_folder import OPEN, full_trace, make_run, report_json, turn
from support import ScriptTest, quietly

MOST_BYTES = 200_000


class PictureTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.run_folder = self.folder / "run"
        self.path = self.folder / "report.png"

    def draw(self) -> np.ndarray:
        code, out, err = quietly(report_picture.main, self.run_folder, "-o", self.path)
        self.assertEqual((code, out), (0, ""))
        self.assertIn("report.png", err)
        self.assertLess(self.path.stat().st_size, MOST_BYTES)
        return np.asarray(Image.open(self.path).convert("RGB"))

    def test_figures_stand_below_one_another(self) -> None:
        make_run(self.run_folder, [turn("a"), turn("b")], report_json())
        short = self.draw()
        full_trace(self.run_folder / "trace", 2)
        long = self.draw()
        self.assertEqual(short.shape[1], long.shape[1])
        self.assertGreater(long.shape[0], short.shape[0] + 300, "the trace's two figures")
        for quarter in np.array_split(long, 4):
            self.assertGreater(len(np.unique(quarter.reshape(-1, 3), axis=0)), 5)

    def test_what_has_no_figure_is_said(self) -> None:
        make_run(self.run_folder, [turn("a", OPEN)])
        with self.assertRaisesRegex(report_picture.UserError, "nothing to draw yet"):
            report_picture.main([str(self.run_folder), "-o", str(self.path)])
        self.assertFalse(self.path.exists())
