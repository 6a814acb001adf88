#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what this machine lacks (Debian 12, Ubuntu 24.04) and makes the helpers' Python environment, .venv.
# Does nothing, quickly, when all is there. Exit code 2: something has to be installed by someone else.
#
#   scripts/setup.sh         packages and .venv
#   scripts/setup.sh WHAT    what something more needs:
#     python           .venv, and nothing else
#     books            what pecia-pack reads PDF, EPUB, HTML, DOCX and tables with
#     report           what pecia-report draws with
#     test             what tests/scripts needs: pytest, books and report
#     dev              what scripts/check.sh calls, and pre-commit
#     cuda             the headers of cudnn-frontend and CUTLASS, and cuobjdump into build/cuda-tools (x86-64)
#     grammar          the sources of XGrammar, for generation.schema
#     aarch64          what builds and tests for aarch64 on another machine: Debian's cross compiler, qemu-user, and the
#                      arm64 packages of Debian, unpacked into build/aarch64-sysroot
#     aarch64-cuda     the same, the headers that `cuda` gets, and CUDA's libraries for arm servers, unpacked into
#                      build/aarch64-cuda (on x86-64 with nvcc)
#     peers            build/peers, what bench peers measures; peers-openvino: build/peers-openvino
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log="$root/build/setup.log"

packages=(
  openmpi-bin libopenmpi-dev libhdf5-dev hdf5-tools libcli11-dev libyaml-cpp-dev nlohmann-json3-dev
  libspdlog-dev libfmt-dev libhwloc-dev libopenblas-openmp-dev libhwy-dev zlib1g-dev libgtest-dev libgmock-dev
  ninja-build cmake ccache pkg-config g++ git ca-certificates python3-venv
)
if [[ -n ${CI:-} ]]; then packages+=(clang-format clang-tidy lmod shellcheck slurm-wlm munge qemu-user); fi

# step WHAT COMMAND…: runs it with its output in the log; says WHAT, or shows the end of the log.
step() {
  local what=$1 code=0
  shift
  echo "setup: $what" >&2
  mkdir -p "$(dirname "$log")"
  printf '\n== %s: %s\n' "$(date -u +%FT%TZ)" "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null || code=$?
  if ((code != 0)); then
    tail -n 20 "$log" >&2
    echo "setup: failed ($what, exit code $code). The whole output is in $log" >&2
    exit 1
  fi
}

is_known_system() {
  [[ -r /etc/os-release ]] || return 1
  local ID="" ID_LIKE=""
  # shellcheck source=/dev/null
  source /etc/os-release
  [[ " $ID $ID_LIKE " == *" debian "* || " $ID $ID_LIKE " == *" ubuntu "* ]] && command -v apt-get >/dev/null
}

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/^ii *//p') || true
  for package in "${packages[@]}"; do
    grep -qxF "$package" <<<"$installed" || echo "$package"
  done
}

explain_and_end() {
  local tool
  {
    echo "setup: $1"
    echo "On a cluster load modules, or ask for packages, that give:"
    echo "  a C++20 compiler (GCC 11 or newer), CMake 3.22 or newer, Ninja, pkg-config, Python 3.9 to 3.13 with venv"
    echo "  MPI (Open MPI 4.1 or newer), HDF5 1.10 or newer (serial C library), hwloc, OpenBLAS (OpenMP flavour)"
    echo "  CLI11 2, yaml-cpp, nlohmann-json, spdlog with fmt, Highway 1.0, zlib; for the tests GoogleTest and GoogleMock"
    echo "Debian calls them: ${packages[*]}"
    for tool in g++ cmake ninja pkg-config mpirun python3; do
      command -v "$tool" >/dev/null || echo "  not found here: $tool"
    done
    echo "Then call scripts/setup.sh again. What CMake did not find is at the end of $log"
  } >&2
  exit 2
}

# Whether CMake finds all it needs, from modules for example; asked anew until it does.
everything_is_found() {
  local probe="$root/build/probe"
  mkdir -p "$root/build"
  [[ -f $probe/build.ninja ]] ||
    cmake -S "$root" -B "$probe" -G Ninja -DPECIA_BUILD_TESTS=OFF >>"$log" 2>&1 </dev/null
}

install_packages() {
  if ! is_known_system; then
    everything_is_found || explain_and_end "this system is neither Debian nor Ubuntu; nothing was installed"
    return
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} > 0)) || return 0
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      [[ ! -t 0 ]] || sudo -v
      as_root=(sudo)
    elif everything_is_found; then
      return
    else
      explain_and_end "these packages are missing and need root: ${missing[*]}"
    fi
  fi
  step "reading the package lists" "${as_root[@]}" apt-get -q update
  step "installing ${missing[*]}" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q install -y --no-install-recommends "${missing[@]}"
}

# install_requirements NAME [FOLDER]: scripts/NAME.txt into that environment (.venv), unless that very file has been
# installed. Lists come with the hashes of all that is installed, but those of peers: no run of Pecia needs them, and which
# torch they take, several GB, depends on the index.
install_requirements() {
  local environment="${2:-.venv}" hashes=(--require-hashes)
  if [[ $1 == requirements-peers* ]]; then hashes=(); fi
  local list="$root/scripts/$1.txt" stamp="$root/$environment/$1.installed"
  if cmp -s "$list" "$stamp"; then return; fi
  step "installing scripts/$1.txt into $environment" "$root/$environment/bin/python" -m pip install \
    --disable-pip-version-check --no-input -q "${hashes[@]}" -r "$list"
  cp "$list" "$stamp"
}

make_environment() {
  local python=/usr/bin/python3
  is_known_system || python=python3
  [[ -x $root/.venv/bin/python && -x $root/.venv/bin/pip ]] ||
    step "making .venv" "$python" -m venv --clear "$root/.venv"
  install_requirements requirements
}

# The headers of cudnn-frontend, out of its wheel into build/cudnn-frontend, unless those have been unpacked.
get_cudnn_frontend() {
  local list="$root/scripts/requirements-cuda.txt" folder="$root/build/cudnn-frontend" wheel
  if cmp -s "$list" "$folder/unpacked"; then return; fi
  rm -rf "$folder"
  step "getting the headers of cudnn-frontend" "$root/.venv/bin/pip" download --disable-pip-version-check \
    --no-input -q --no-deps --require-hashes --only-binary :all: --python-version 3.11 --implementation cp \
    --abi cp311 --platform manylinux_2_28_x86_64 -d "$folder/wheel" -r "$list"
  wheel=$(echo "$folder"/wheel/*.whl)
  step "unpacking $(basename "$wheel")" "$root/.venv/bin/python" -m zipfile -e "$wheel" "$folder"
  rm -r "$folder/wheel"
  cp "$list" "$folder/unpacked"
}

# The headers of CUTLASS, out of its wheel into build/cutlass, unless those have been unpacked.
get_cutlass() {
  local list="$root/scripts/requirements-cutlass.txt" folder="$root/build/cutlass" wheel
  if cmp -s "$list" "$folder/unpacked"; then return; fi
  rm -rf "$folder"
  step "getting the headers of CUTLASS" "$root/.venv/bin/pip" download --disable-pip-version-check --no-input -q \
    --no-deps --require-hashes --only-binary :all: -d "$folder/wheel" -r "$list"
  wheel=$(echo "$folder"/wheel/*.whl)
  step "unpacking $(basename "$wheel")" "$root/.venv/bin/python" -m zipfile -e "$wheel" "$folder/wheel"
  mv "$folder/wheel/cutlass_library/source/include" "$folder/include"
  rm -r "$folder/wheel"
  cp "$list" "$folder/unpacked"
}

# cuobjdump and the disassembler that it calls, out of their wheels into build/cuda-tools/bin, unless they are there.
# `pecia_tools.gpu.kernel_sass` reads what it prints. Other processors have no such wheels, or may have the tools from CUDA.
get_cuobjdump() {
  local list="$root/scripts/requirements-cuda-tools.txt" folder="$root/build/cuda-tools" wheel
  if [[ $(uname -m) != x86_64 ]] || cmp -s "$list" "$folder/unpacked"; then return; fi
  rm -rf "$folder"
  step "getting cuobjdump" "$root/.venv/bin/pip" download --disable-pip-version-check --no-input -q --no-deps \
    --require-hashes --only-binary :all: -d "$folder/wheels" -r "$list"
  for wheel in "$folder"/wheels/*.whl; do
    step "unpacking $(basename "$wheel")" "$root/.venv/bin/python" -m zipfile -e "$wheel" "$folder"
  done
  mv "$folder"/nvidia/*/bin "$folder/bin"
  chmod +x "$folder"/bin/*
  rm -r "$folder/wheels" "$folder/nvidia"
  cp "$list" "$folder/unpacked"
}

# The C++ sources of XGrammar, out of its source distribution into build/xgrammar, unless those have been unpacked. pip
# makes an environment for a moment to read the distribution's metadata, and builds nothing.
get_xgrammar() {
  local list="$root/scripts/requirements-grammar.txt" folder="$root/build/xgrammar"
  if cmp -s "$list" "$folder/unpacked"; then return; fi
  rm -rf "$folder"
  step "getting the sources of XGrammar" "$root/.venv/bin/pip" download --disable-pip-version-check --no-input -q \
    --no-deps --require-hashes --no-binary xgrammar -d "$folder/archive" -r "$list"
  step "unpacking $(basename "$folder"/archive/*)" tar -xzf "$folder"/archive/xgrammar-*.tar.gz -C "$folder" \
    --strip-components 1
  rm -r "$folder/archive"
  cp "$list" "$folder/unpacked"
}

# The cross compiler and qemu-user are installed on this machine; packages of arm64 are only unpacked.
get_aarch64() {
  if ! is_known_system; then
    echo "setup: the cross compiler and the arm64 packages are Debian's; on aarch64 itself scripts/setup.sh is enough" >&2
    exit 2
  fi
  packages=(g++-aarch64-linux-gnu qemu-user)
  install_packages
  step "unpacking the packages for aarch64" "$root/scripts/cross/aarch64-sysroot.sh" "$root/build/aarch64-sysroot"
}

# get_aarch64_cuda: a toolkit whose programs are this machine's nvcc, and whose libraries and headers are for
# aarch64. nvcc and CMake look for them in targets/aarch64-linux.
get_aarch64_cuda() {
  local list="$root/scripts/requirements-cuda-aarch64.txt" folder="$root/build/aarch64-cuda" target nvcc home wheel library
  nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || true
  home=$(dirname "$(dirname "$(readlink -f "${nvcc:-/}")")")
  if [[ ! -d $home/nvvm ]]; then
    echo "setup: there is no CUDA toolkit for this machine on the PATH or in /usr/local/cuda; its nvcc is needed" >&2
    exit 2
  fi
  if cmp -s "$list" "$folder/unpacked"; then return; fi
  rm -rf "$folder"
  step "getting CUDA's libraries for aarch64" "$root/.venv/bin/pip" download --disable-pip-version-check --no-input -q \
    --no-deps --require-hashes --only-binary :all: --platform manylinux_2_27_aarch64 \
    --platform manylinux_2_18_aarch64 --platform manylinux2014_aarch64 --platform any -d "$folder/wheels" -r "$list"
  for wheel in "$folder"/wheels/*.whl; do
    step "unpacking $(basename "$wheel")" "$root/.venv/bin/python" -m zipfile -e "$wheel" "$folder"
  done
  target="$folder/targets/aarch64-linux"
  mkdir -p "$target"
  cp -rl "$folder"/nvidia/*/include "$folder"/nvidia/*/lib "$target"
  for library in "$target"/lib/*.so.*; do ln -sf "$(basename "$library")" "${library%.so.*}.so"; done
  cp -rs "$home/bin" "$folder"  # nvcc looks for the rest beside its folder, which is no link therefore
  ln -s "$home/nvvm" "$folder"
  ln -s "$home/include/crt" "$home/include/fatbinary_section.h" "$target/include"
  rm -r "$folder/wheels" "$folder/nvidia" "$folder"/*.dist-info
  cp "$list" "$folder/unpacked"
}

# make_peers NAME: an environment of its own. 6 GB each, most of it what torch is linked to; peers also takes some minutes
# of compiling llama.cpp.
make_peers() {
  [[ -x $root/build/$1/bin/pip ]] ||
    step "making build/$1" "$root/.venv/bin/python" -m venv --clear "$root/build/$1"
  install_requirements "requirements-$1" "build/$1"
}

case "${1:-}" in
  "") install_packages ;;
  python | books | report | test | dev | cuda | aarch64 | aarch64-cuda | grammar | peers | peers-openvino) ;;
  --version)
    sed -n 's/^VERSION = "\(.*\)".*/pecia-setup \1/p' "$root/scripts/pecia_tools/__init__.py"
    exit
    ;;
  -h | --help)
    sed -n '1d; /^# SPDX-/d; /^set -/q; s/^# \{0,1\}//p' "$0"
    exit
    ;;
  *)
    echo "setup: '$1' is nothing to set up. Call scripts/setup.sh, or with 'python', 'books', 'report', 'test', 'dev', 'cuda', 'aarch64', 'aarch64-cuda', 'grammar', 'peers' or 'peers-openvino'" >&2
    exit 2
    ;;
esac
make_environment
case "${1:-}" in
  books) install_requirements requirements-books ;;
  report) install_requirements requirements-report ;;
  test) for name in books report test; do install_requirements "requirements-$name"; done ;;
  dev) install_requirements requirements-dev ;;
  cuda) get_cudnn_frontend && get_cutlass && get_cuobjdump ;;
  aarch64) get_aarch64 ;;
  aarch64-cuda) get_aarch64 && get_cudnn_frontend && get_cutlass && get_aarch64_cuda ;;
  grammar) get_xgrammar ;;
  peers | peers-openvino) make_peers "$1" ;;
esac
