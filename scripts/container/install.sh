#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh SOURCE: what an image is made by, on Debian 12 as root: builds the command with XGrammar, installs it and
# the helpers' Python environment in /opt/pecia, and leaves of the packages only what they need when they run.
set -euo pipefail
source=$1
prefix=/opt/pecia
build=$(mktemp -d)
export DEBIAN_FRONTEND=noninteractive

to_build=(
  ca-certificates cmake g++ libcli11-dev libfmt-dev libhdf5-dev libhwloc-dev libhwy-dev libopenmpi-dev libspdlog-dev
  libyaml-cpp-dev ninja-build nlohmann-json3-dev pkg-config python3-venv zlib1g-dev
)
to_run=(openmpi-bin openssh-client python3)

apt-get -q update
apt-get -q install -y --no-install-recommends "${to_build[@]}" "${to_run[@]}"
"$source/scripts/setup.sh" grammar
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPECIA_BUILD_TESTS=OFF
cmake --build "$build" --target pecia
cmake --install "$build" --prefix "$prefix" --strip
"$prefix/bin/pecia-setup" report
"$prefix/bin/pecia-setup" books

# The packages of the libraries that the command is linked to stay.
mapfile -t libraries < <(ldd "$prefix/bin/pecia" | sed -nE 's/.* => (\/[^ ]+) .*/\1/p' | xargs -n 1 readlink -f)
mapfile -t packages < <({ dpkg -S "${libraries[@]}" 2>/dev/null || true; } | cut -d: -f1 | sort -u)
apt-mark auto "${to_build[@]}" >/dev/null
apt-mark manual "${packages[@]}" "${to_run[@]}" ca-certificates >/dev/null
apt-get -q purge -y --auto-remove
rm -rf "$build" "$source" /var/lib/apt/lists/* ~/.cache/pip
