#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs programs of the cuda build with their small libraries, for a machine with a GPU and without this one's
# packages. The large libraries (cuBLASLt, cuDNN, NCCL, nvrtc) stay out: the bundle's ./run finds that machine's.
#
#   scripts/bundle.sh [OUTPUT.tar.gz]     default build/pecia-cuda.tar.gz; at most 60 MiB
#
# There: tar xzf pecia-cuda.tar.gz && cd pecia-cuda && ./gpu-check.sh
# The C library is that machine's: it must not be older than the one here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/cuda"
output=$(realpath -m "${1:-$root/build/pecia-cuda.tar.gz}")
most_bytes=$((60 << 20))
large='^lib(cublas|cublasLt|cudnn.*|nccl|nvrtc.*|cuda|nvidia-.*)\.so'
of_the_system='^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|nsl))\.so'

shopt -s nullglob
programs=("$build"/tests/test_*_cuda "$build"/tests/test_{fp8_weights,goldens,layout_modes,modes,requests} "$build"/bin/*)
if ((${#programs[@]} == 0)); then
  echo "bundle: there are no programs in $build; build them: cmake --preset cuda && cmake --build --preset cuda" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle="$work/pecia-cuda"
mkdir -p "$bundle/bin" "$bundle/lib"
install -m 755 "${programs[@]}" "$bundle/bin/"
install -m 644 "$root/LICENSE" "$bundle/"
strip "$bundle"/bin/*

# "NAME PATH" of each library that a program or library is linked to.
linked() { ldd "$@" | sed -nE 's/^[ \t]*([^ ]+) => ([^ ]+) .*/\1 \2/p' | sort -u; }

if linked "$bundle"/bin/* | grep -q '^libmpi\.so'; then
  # Open MPI with its plugins, in folders that OPAL_PREFIX can move.
  prefix=$(ompi_info --parsable --path prefix | sed 's/.*://')
  for folder in libdir pkglibdir pkgdatadir sysconfdir; do
    from=$(ompi_info --parsable --path "$folder" | sed 's/.*://')
    [[ -d $from && $from == "$prefix"/* ]] || continue
    [[ $folder == libdir ]] && continue  # the libraries themselves come with the others
    mkdir -p "$bundle/openmpi/${from#"$prefix"/}"
    cp -rL "$from/." "$bundle/openmpi/${from#"$prefix"/}/"
  done
  mkdir -p "$bundle/openmpi/bin"
  for tool in mpirun orted orterun prterun prted; do
    if path=$(command -v "$tool"); then install -m 755 "$(realpath "$path")" "$bundle/openmpi/bin/$tool"; fi
  done
fi

mapfile -t binaries < <(find "$bundle" -type f \( -perm -u+x -o -name '*.so*' \))
: >"$bundle/large-libraries"
while read -r name path; do
  if [[ $name =~ $of_the_system ]]; then continue; fi
  if [[ $name =~ $large ]]; then
    if [[ ! $name =~ ^libcuda\.so ]]; then echo "$name" >>"$bundle/large-libraries"; fi
    continue
  fi
  install -m 644 "$(realpath "$path")" "$bundle/lib/$name"
done < <(linked "${binaries[@]}")

# What a program loads by itself when it is there: cuDNN, and the compiler that it needs.
cuda_major=$(sed -nE 's/^libcublasLt\.so\.([0-9]+)$/\1/p' "$bundle/large-libraries" | head -n 1)
printf '%s\n' libcudnn.so.9 "libnvrtc.so.$cuda_major" >"$bundle/optional-libraries"

cp -r "$root/tests/goldens" "$bundle/goldens"
mkdir "$bundle/pecia_tools"
cp "$root"/scripts/pecia_tools/{__init__,command,bench_model,bench_sdpa}.py "$bundle/pecia_tools/"
install -m 755 "$root/tests/support/own_hostid.sh" "$root/scripts/pecia_tools/bundle_run.sh" "$bundle"
mv "$bundle/bundle_run.sh" "$bundle/run"
install -m 755 "$root/scripts/gpu-check.sh" "$bundle/gpu-check.sh"
mkdir -p "$(dirname "$output")"
tar -C "$work" -czf "$output" pecia-cuda
bytes=$(stat -c %s "$output")
echo "bundle: $output, $((bytes >> 20)) MiB, programs: $(cd "$bundle/bin" && echo *)" >&2
if ((bytes > most_bytes)); then
  echo "bundle: that is more than $((most_bytes >> 20)) MiB" >&2
  exit 1
fi
