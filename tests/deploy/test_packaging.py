# SPDX-License-Identifier: Apache-2.0
"""Recipes of package managers name what the build and the helpers need, and modules of an installed tree load it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

from harness import SOURCE
from rattler import RECIPE, RattlerBuild

BUILD = Path(os.environ["PECIA_BUILD"])
CMAKE = os.environ["PECIA_CMAKE"]
PACKAGING = SOURCE / "scripts/packaging"
LMOD = [Path(root) / "init/bash" for root in ("/usr/share/lmod/lmod", "/usr/share/lmod/8.6.19")]

# What setup.sh installs by Debian's name, and the same for Spack and conda; None: the recipes need no such package.
PACKAGES: dict[str, Any] = {
    "openmpi-bin": None,  # comes with the next
    "libopenmpi-dev": ("mpi", "openmpi"),
    "libhdf5-dev": ("hdf5", "hdf5"),
    "hdf5-tools": None,  # of the tests
    "libcli11-dev": ("cli11", "cli11"),
    "libyaml-cpp-dev": ("yaml-cpp", "yaml-cpp"),
    "nlohmann-json3-dev": ("nlohmann-json", "nlohmann_json"),
    "libspdlog-dev": ("spdlog", "spdlog"),
    "libfmt-dev": ("fmt", "fmt"),
    "libhwloc-dev": ("hwloc", "libhwloc"),
    "libopenblas-openmp-dev": None,  # of a benchmark
    "libhwy-dev": ("highway", "libhwy"),
    "zlib1g-dev": ("zlib-api", "zlib"),
    "libgtest-dev": None,
    "libgmock-dev": None,
    "ninja-build": ("ninja", "ninja"),
    "cmake": ("cmake", "cmake"),
    "ccache": None,
    "pkg-config": ("pkgconfig", "pkg-config"),
    "g++": ("cxx", "cxx"),
    "git": None,
    "ca-certificates": None,
    "python3-venv": ("python", "python"),
}
SPACK, CONDA = 0, 1


def packages_of_setup() -> list[str]:
    text = (SOURCE / "scripts/setup.sh").read_text()
    return re.search(r"^packages=\((.*?)\)", text, re.M | re.S)[1].split()


def wanted(manager: int) -> set[str]:
    return {PACKAGES[name][manager] for name in packages_of_setup() if PACKAGES[name]}


def helpers() -> set[str]:
    return {re.split(r"[=;\[]", line)[0] for line in asked_for()[""]}


def asked_for() -> dict[str, list[str]]:
    """The dependencies of the helpers ("") and of their extras."""
    project = tomllib.loads((SOURCE / "scripts/pyproject.toml").read_text("utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def project_version() -> str:
    return re.search(r"project\(pecia VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]


def least_versions() -> dict[str, str]:
    """What setup.sh says that a cluster must have."""
    text = (SOURCE / "scripts/setup.sh").read_text()
    patterns = {
        "cmake": r"CMake (\S+) or",
        "hdf5": r"HDF5 (\S+) or",
        "cli11": r"CLI11 (\d+)",
        "highway": r"Highway (\S+),",
    }
    return {name: re.search(pattern, text)[1] for name, pattern in patterns.items()}


class Spack:
    """Runs the recipe with directives that write down what they are given. Spack itself is not on PyPI."""

    def __init__(self) -> None:
        self.depends: dict[str, dict[str, Any]] = {}
        self.versions: list[str] = []
        self.licences: list[str] = []
        self.targets: set[str] = set()
        self.condition = ""
        names = {
            "depends_on": self.depends_on,
            "version": lambda number, **_: self.versions.append(number),
            "license": self.licences.append,
            "when": self.when,
            "requires": lambda *targets, **_: self.targets.update(targets),
            **dict.fromkeys(("variant", "conflicts", "generator"), lambda *_, **__: None),
            "CMakePackage": type(
                "CMakePackage", (), {"define": staticmethod(lambda key, value: (key, value))}
            ),
        }
        module = types.ModuleType("spack.package")
        module.__dict__.update(names, __all__=list(names))
        old = {name: sys.modules.get(name) for name in ("spack", "spack.package")}
        sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": module})
        try:
            self.recipe: dict[str, Any] = {}
            path = PACKAGING / "spack/packages/pecia/package.py"
            exec(compile(path.read_text(), path, "exec"), self.recipe)
        finally:
            for name, value in old.items():
                sys.modules.pop(name)
                if value is not None:
                    sys.modules[name] = value

    def depends_on(self, spec: str, type: Any = ("build", "link")) -> None:
        name, _, version = spec.partition("@")
        self.depends[name] = {"version": version, "type": type, "when": self.condition}

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self.condition = condition
        yield
        self.condition = ""


class Recipes(unittest.TestCase):
    def test_setup_installs_nothing_that_is_not_weighed_here(self) -> None:
        self.assertEqual(sorted(packages_of_setup()), sorted(PACKAGES))

    def test_spack(self) -> None:
        spack = Spack()
        run = {name for name, of in spack.depends.items() if of["type"] == "run"}
        self.assertEqual(set(spack.depends) - run, wanted(SPACK) - {"python"} | {"c"})
        self.assertEqual(run, {"python", *(f"py-{name.replace('_', '-')}" for name in helpers())})
        self.assertEqual(
            {of["when"] for name, of in spack.depends.items() if name in run}, {"+helpers"}
        )
        self.assertEqual(spack.versions, [project_version()])
        self.assertEqual(spack.licences, ["Apache-2.0"])
        self.assertEqual(spack.targets, {"target=x86_64:", "target=aarch64:"})
        for name, least in least_versions().items():
            self.assertEqual(spack.depends[name]["version"], f"{least}:", name)
        ((key, value),) = spack.recipe["Pecia"]().cmake_args()
        self.assertIn(f"option({key} ", (SOURCE / "CMakeLists.txt").read_text())
        self.assertIs(value, False)


class Requirements(unittest.TestCase):
    """The lists of what is installed have hashes, and all that is asked for in the files that they are made from."""

    def pins(self, path: Path) -> dict[str, str]:
        text = re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.M).replace("\\\n", " ")
        return dict(line.partition(" --hash=")[::2] for line in text.splitlines() if line)

    def version(self, pin: str) -> str:
        return pin.partition(";")[0].strip()

    def test_every_package_is_pinned_and_has_hashes(self) -> None:
        lists = sorted((SOURCE / "scripts").glob("requirements*.txt"))
        hashed = [path for path in lists if "-peers" not in path.name]
        self.assertEqual(len(hashed), 11)
        for path in hashed:
            for pin, hashes in self.pins(path).items():
                self.assertRegex(pin, r"^[\w.-]+==[\w.]+( *;.*|\s*)$", path)
                self.assertRegex(hashes, r"^sha256:[0-9a-f]{64}( +--hash=sha256:[0-9a-f]{64})* *$", pin)

    def test_lists_are_those_of_what_is_asked_for(self) -> None:
        for extra, wanted in asked_for().items():
            path = SOURCE / f"scripts/requirements{extra and '-'}{extra}.txt"
            locked = set(map(self.version, self.pins(path)))
            for pin in wanted:
                name = self.version(pin).replace("_", "-")
                self.assertIn(name, locked, "pyproject.toml has changed: run scripts/lock-requirements.sh")

    def test_packages_of_one_environment_agree(self) -> None:
        versions = {self.version(pin) for pin in self.pins(SOURCE / "scripts/requirements.txt")}
        names = {version.partition("==")[0] for version in versions}
        for kind in ("books", "dev", "report", "test"):
            for version in map(self.version, self.pins(SOURCE / f"scripts/requirements-{kind}.txt")):
                if version.partition("==")[0] in names:
                    self.assertIn(version, versions)

    def test_pip_is_told_to_demand_them(self) -> None:
        for file in ("setup.sh", "packaging/wheels.sh", "pecia_tools/gguf/demo_model.py"):
            self.assertIn("--require-hashes", (SOURCE / "scripts" / file).read_text())


class Conda(RattlerBuild):
    """By rattler-build itself."""

    def test_the_recipe_names_what_the_build_needs(self) -> None:
        for platform in ("linux-64", "linux-aarch64"):
            with self.subTest(platform=platform):
                found = self.conda("render", RECIPE, platform)
                self.assertEqual((found["name"], found["version"]), ("pecia", project_version()))
                self.assertIn(f"gxx_{platform}", [re.split("[ <>=]", spec)[0] for spec in found["build"]])
                self.assert_names(found)

    def assert_names(self, found: dict[str, Any]) -> None:
        names = {
            kind: {re.split(r"[ <>=]", spec)[0] for spec in found[kind]}
            for kind in ("build", "host", "run")
        }
        compilers = {name for name in names["build"] if re.match(r"gcc_|gxx_|sysroot_", name)}
        self.assertEqual(len(compilers), 3)
        self.assertEqual(
            (names["build"] - compilers) | names["host"], wanted(CONDA) - {"python", "cxx"}
        )
        self.assertEqual(names["run"], {"openmpi", "python", *helpers()})
        least = least_versions()
        of_conda = {"cmake": "build", "hdf5": "host", "cli11": "host", "highway": "host"}
        for name, kind in of_conda.items():
            self.assertIn(f"{name.replace('highway', 'libhwy')} >={least[name]}", found[kind])


class Modules(unittest.TestCase):
    tree: ClassVar[Path]
    place: ClassVar[Path]
    init: str  # a line of bash that makes the command `module`

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-modules-")
        cls.addClassCleanup(folder.cleanup)
        cls.place = Path(folder.name)
        made, cls.tree = cls.place / "made", cls.place / "moved"
        subprocess.run(
            [CMAKE, "--install", BUILD, "--prefix", made], check=True, stdout=subprocess.DEVNULL
        )
        made.rename(cls.tree)

    def use_lmod(self) -> None:
        found = [path for path in LMOD if path.exists()]
        if not found:
            self.skipTest("there is no Lmod (Debian: lmod)")
        self.init = f"source {found[0]}"

    def use_environment_modules(self) -> None:
        """Debian's package is unpacked, since it cannot be installed beside Lmod."""
        program = next(Path("/usr/lib").glob("*/modulecmd.tcl"), None)
        if program is None:
            command = (
                "apt-get -q download environment-modules && dpkg -x environment-modules_*.deb tree"
            )
            subprocess.run(command, shell=True, cwd=self.place, capture_output=True, check=False)
            program = next(self.place.glob("tree/usr/lib/*/modulecmd.tcl"), None)
        if program is None or shutil.which("tclsh") is None:
            self.skipTest("Environment Modules cannot be had (Debian: environment-modules, tcl)")
        self.init = f'module() {{ eval "$(tclsh {program} bash "$@")"; }}'

    def module(self, *lines: str) -> str:
        script = "\n".join(
            (self.init, f"module use {self.tree}/share/pecia/modulefiles", *lines)
        )
        ended = subprocess.run(
            ["bash", "-c", script],
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.tree)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.stdout

    def check(self) -> None:
        version = project_version()
        words = self.module(
            "module load pecia", "command -v pecia", "pecia --version", "echo home=$PECIA_HOME"
        )
        self.assertIn(f"{self.tree}/bin/pecia\n", words)
        self.assertIn(f"pecia {version}", words)
        self.assertIn(f"home={self.tree}\n", words)
        self.assertIn(f"pecia/{version}", self.module("module avail 2>&1"))
        self.assertIn("pecia doctor", self.module("module help pecia"))
        gone = self.module(
            "module load pecia", "module unload pecia", "command -v pecia || echo gone=$PECIA_HOME."
        )
        self.assertEqual(gone.splitlines()[-1], "gone=.")

    def check_copy(self, name: str, path: str) -> None:
        """In another place, the file says where it belongs."""
        copy = self.place / "copy" / name
        self.addCleanup(shutil.rmtree, self.place / "copy")
        copy.parent.mkdir(parents=True)
        shutil.copy(PACKAGING / "modulefiles" / path, copy)
        words = self.module(
            f"module unuse {self.tree}/share/pecia/modulefiles",
            f"module use {self.place}/copy",
            "module load pecia",
        )
        self.assertIn("PREFIX/share/pecia/modulefiles/pecia", words)

    def test_lmod(self) -> None:
        self.use_lmod()
        self.check()
        self.check_copy("pecia/1.lua", "pecia.lua")

    def test_lmod_reads_the_tcl_file_where_there_is_no_other(self) -> None:
        self.use_lmod()
        lua = self.tree / f"share/pecia/modulefiles/pecia/{project_version()}.lua"
        hidden = lua.with_name(".hidden")
        lua.rename(hidden)
        self.addCleanup(hidden.rename, lua)
        self.check()
        self.check_copy("pecia/1", "pecia.tcl")

    def test_environment_modules(self) -> None:
        self.use_environment_modules()
        self.check()
        self.check_copy("pecia/1", "pecia.tcl")


if __name__ == "__main__":
    unittest.main()
