# SPDX-License-Identifier: Apache-2.0
"""Spack's recipe. It builds a checkout: spack repo add scripts/packaging/spack, then spack dev-build pecia@0.2.0."""

from spack.package import *


class Pecia(CMakePackage):
    """Long-context language-model inference as offline batches on HPC clusters: ring, Ulysses and tensor parallelism
    on one KV cache, prompts and results in HDF5 files, and runs that continue where they stopped."""

    license("Apache-2.0")

    version("0.2.0")

    variant("helpers", default=True, description="Python packages of pecia-pack and the other helpers")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("cli11@2:")
    depends_on("fmt")
    depends_on("hdf5@1.10:")
    depends_on("highway@1.0:")
    depends_on("hwloc")
    depends_on("mpi")
    depends_on("nlohmann-json")
    depends_on("spdlog")
    depends_on("yaml-cpp")
    depends_on("zlib-api")

    with when("+helpers"):
        depends_on("python@3.9:3.13", type="run")
        depends_on("py-gguf", type="run")
        depends_on("py-h5py", type="run")
        depends_on("py-jinja2", type="run")
        depends_on("py-ml-dtypes", type="run")
        depends_on("py-numpy", type="run")
        depends_on("py-pyyaml", type="run")
        depends_on("py-safetensors", type="run")
        depends_on("py-tokenizers", type="run")
        depends_on("py-tqdm", type="run")

    requires(
        "target=x86_64:", "target=aarch64:", policy="one_of", msg="Pecia is written for x86-64 and aarch64"
    )
    conflicts("%gcc@:10", msg="Pecia is C++20: GCC 11 or newer")

    generator("ninja")

    def cmake_args(self):
        return [self.define("PECIA_BUILD_TESTS", False)]

    def setup_run_environment(self, env):
        # The helpers use Spack's Python, not one that pecia-setup makes.
        if self.spec.satisfies("+helpers"):
            env.set("PECIA_PYTHON", self.spec["python"].command.path)
