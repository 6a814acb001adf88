#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# aarch64-sysroot.sh FOLDER: the arm64 packages of Debian that Pecia is built with, and all that they depend on, unpacked
# into FOLDER. apt reads lists and keeps a state of its own there, so nothing is installed on this machine and root is
# not needed. Does nothing if the same packages have been unpacked. 120 MB come over the network, 600 MB stay.
set -euo pipefail
folder=$1

packages=(
  libopenmpi-dev libhdf5-dev libyaml-cpp-dev libspdlog-dev libfmt-dev libhwloc-dev libhwy-dev zlib1g-dev libcli11-dev
  nlohmann-json3-dev libgtest-dev libgmock-dev libstdc++6 libgomp1
)
# Headers and linker scripts of the C library come with the cross compiler.
of_compiler='^(libc6-dev|libc-dev-bin|linux-libc-dev|libcrypt-dev|libstdc\+\+-[0-9]+-dev|libgcc-[0-9]+-dev|gcc|g\+\+|cpp|binutils).*_'

if [[ "${packages[*]}" == "$(cat "$folder/unpacked" 2>/dev/null)" ]]; then exit; fi
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root/usr/lib"
: >"$folder/apt/status"
folder=$(cd "$folder" && pwd)

of_arm64() {
  apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$folder/apt" \
    -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User="$(id -un)" \
    -o Debug::NoLocking=1 "$@"
}
of_arm64 update
of_arm64 --no-install-recommends --download-only install "${packages[@]}"

ln -s usr/lib "$folder/root/lib"  # as in an installed system, so that a library has one name
for package in "$folder"/apt/cache/archives/*.deb; do
  name=$(basename "$package")
  if [[ $name =~ $of_compiler ]]; then continue; fi
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$folder/root"
done
# What packages do when they are installed: alternatives of MPI's names.
libraries="$folder/root/usr/lib/aarch64-linux-gnu"
for name in libmpi libopen-rte libopen-pal; do
  [[ -e $libraries/$name.so ]] || ln -s "openmpi/lib/$name.so" "$libraries/$name.so"
done
cp -rn "$folder/root/usr/include/aarch64-linux-gnu/." "$folder/root/usr/include"  # no compiler of ours searches there
while read -r link; do  # to files of the root, wherever that is
  ln -sfr "$folder/root$(readlink "$link")" "$link"
done < <(find "$folder/root" -lname '/*')
rm -rf "$folder/apt"
echo "${packages[*]}" >"$folder/unpacked"
