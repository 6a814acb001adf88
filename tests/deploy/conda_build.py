# SPDX-License-Identifier: Apache-2.0
"""conda_build.py render RECIPE PLATFORM | build RECIPE FOLDER: what rattler-build makes of a recipe, as JSON on stdout.
It runs with the Python that has py-rattler-build.

build needs no network: FOLDER becomes a channel of empty packages for all that the recipe asks for, so compilers and
libraries are those of this machine, and the package that is built there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from rattler_build import (
    EnvironmentIsolation,
    PlatformConfig,
    RenderConfig,
    Stage0Recipe,
    ToolConfiguration,
    VariantConfig,
)

VARIANTS = """
c_compiler: [gcc]
cxx_compiler: [gxx]
c_stdlib: [sysroot]
c_stdlib_version: ['2.28']
"""
NEWEST = "99"
VERSIONS = {"python": "3.12.0", "sysroot_linux-64": "2.28", "sysroot_linux-aarch64": "2.28"}


def rendered(path: Path, platform: str | None):
    """For this machine's platform, or another."""
    config = RenderConfig(PlatformConfig(target_platform=platform)) if platform else None
    (variant,) = Stage0Recipe.from_file(path).render(VariantConfig.from_yaml(VARIANTS), config)
    return variant


def requirements(variant) -> dict[str, list[str]]:
    of = variant.recipe.requirements
    return {kind: list(map(str, getattr(of, kind))) for kind in ("build", "host", "run")}


def make_stub(name: str, channel: Path) -> None:
    version = VERSIONS.get(name, NEWEST)
    text = f"""
schema_version: 1
package: {{name: {name}, version: '{version}'}}
build: {{noarch: generic, number: 0}}
about: {{summary: nothing}}
"""
    Stage0Recipe.from_yaml(text).run_build(output_dir=channel, channels=[])


def main() -> None:
    command, path = sys.argv[1], Path(sys.argv[2])
    variant = rendered(path, sys.argv[3] if command == "render" else None)
    wanted = requirements(variant)
    found = {
        "name": str(variant.recipe.package.name),
        "version": str(variant.recipe.package.version),
        **wanted,
    }
    if command == "build":
        channel = Path(sys.argv[3])
        specifications = {spec for kind in wanted.values() for spec in kind}
        for name in sorted({re.split(r"[ <>=]", spec)[0] for spec in specifications}):
            make_stub(name, channel)
        built = variant.run_build(
            tool_config=ToolConfiguration(test_strategy="skip"),
            output_dir=channel,
            channels=[str(channel)],
            env_isolation=EnvironmentIsolation.NONE,
        )
        found["packages"] = [str(package) for package in built.packages]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
