# SPDX-License-Identifier: Apache-2.0
"""MPI and HDF5 where a cluster's modules put them: found by the variables that modules set, serial or parallel."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

from harness import DONE, SOURCE, RunTest, random_requests

CMAKE = os.environ["PECIA_CMAKE"]
MODULES = Path(__file__).with_name("modules.sh")


class ModulesTest(RunTest):
    modules: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-modules-")
        cls.addClassCleanup(folder.cleanup)
        cls.modules = Path(folder.name)
        subprocess.run([MODULES, cls.modules], check=True)

    def build(self, targets: list[str], variables: dict[str, Path]) -> Path:
        """A build folder, configured with the modules' variables alone."""
        build = self.folder / "build"
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        for command in (
            [CMAKE, "-S", SOURCE, "-B", build, "-G", "Ninja"],
            [CMAKE, "--build", build, "--target", *targets],
        ):
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            self.assertEqual(ended.returncode, 0, ended.stdout[-4000:] + ended.stderr[-4000:])
        return build

    def cached(self, build: Path, name: str) -> str:
        return re.search(
            rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE
        )[1]

    def libraries(self, program: Path, environment: dict[str, str]) -> dict[str, str]:
        said = subprocess.check_output(["ldd", program], env=environment, text=True)
        return dict(re.findall(r"(\S+) => (\S+)", said))

    def test_hdf5(self) -> None:
        for flavour, variable, parallel in (
            ("serial", "HDF5_ROOT", "FALSE"),
            ("serial", "HDF5_DIR", "FALSE"),
            ("parallel", "HDF5_HOME", "TRUE"),
        ):
            with (
                self.subTest(flavour=flavour, variable=variable),
                tempfile.TemporaryDirectory() as folder,
            ):
                self.folder = Path(folder)
                prefix = self.modules / f"hdf5-{flavour}"
                build = self.build(["test_io"], {variable: prefix})
                self.assertEqual(self.cached(build, "HDF5_IS_PARALLEL"), parallel)
                program = build / "tests/test_io"
                found = self.libraries(program, dict(os.environ))
                hdf5 = [path for name, path in found.items() if re.match(r"libhdf5_\w+\.so", name)]
                self.assertTrue(hdf5)
                for path in hdf5:
                    self.assertTrue(path.startswith(str(prefix)), path)
                subprocess.run([program], check=True, stdout=subprocess.DEVNULL)

    def test_mpi_and_parallel_hdf5(self) -> None:
        mpi = self.modules / "openmpi"
        build = self.build(
            ["pecia"], {"MPI_HOME": mpi, "HDF5_ROOT": self.modules / "hdf5-parallel"}
        )
        self.assertEqual(self.cached(build, "MPIEXEC_EXECUTABLE"), str(mpi / "bin/mpiexec"))
        # Its PRRTE has variables of its own for what Open MPI 4 reads from OMPI_*.
        environment = {
            "OPAL_PREFIX": str(mpi),
            "LD_LIBRARY_PATH": str(mpi / "lib"),
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        found = self.libraries(build / "bin/pecia", {**os.environ, **environment})
        self.assertTrue(found["libmpi.so.40"].startswith(str(mpi)), found["libmpi.so.40"])
        requests = random_requests(5, 5, 40, seed=2)
        job = self.write_job(requests, generation={"max_new_tokens": 5, "ignore_eos": True})
        launch = self.launch(
            [mpi / "bin/mpirun", "-np", 2, "--bind-to", "none", build / "bin/pecia", "run", job],
            environment,
        )
        self.assertEqual(launch.wait(120), 0, launch.words())
        self.assertEqual(self.results(job).rows(DONE), list(range(5)))
        self.assertIn("2 ranks", launch.words())


if __name__ == "__main__":
    unittest.main()
