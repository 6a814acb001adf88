#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs programs of the cuda build with their small libraries, for a machine with a GPU and without this one's
# packages. The large libraries (cuBLASLt, cuDNN, NCCL, nvrtc) stay out: the bundle's ./run finds that machine's.
#
#   scripts/bundle.sh [--build FOLDER] [--nccl LIBRARY] [OUTPUT.tar.xz]     default build/cuda, build/pecia-cuda.tar.xz
#
# It has at most 55 MiB; build for the GPU's own architecture alone (-DPECIA_CUDA_ARCHITECTURES=90a). With --nccl it has
# a copy of that libnccl.so.2 with the code for H100 and H200 alone, 21 MiB of these, by which gpu-check's phase D lets
# several ranks share a GPU: pip install --target build/nccl nvidia-nccl-cu13==2.30.7
# There: tar xJf pecia-cuda.tar.xz && cd pecia-cuda && ./gpu-check.sh A results
# The C library is that machine's: it must not be older than the one here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/cuda"
nccl=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --build) build=$(realpath "${2:?--build wants a folder}") ;;
    --nccl) nccl=$(realpath "${2:?--nccl wants a libnccl.so.2}") ;;
    *)
      echo "bundle: there is no option $1" >&2
      exit 2
      ;;
  esac
  shift 2
done
output=$(realpath -m "${1:-$root/build/pecia-cuda.tar.xz}")
most_bytes=$((55 << 20))
large='^lib(cublas|cublasLt|cudnn.*|nccl|nvrtc.*|cuda|nvidia-.*)\.so'
of_the_system='^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|nsl))\.so'

shopt -s nullglob
programs=()
for name in fp8_weights goldens kernels_cuda layout_modes modes narrow_goldens production_types rank_steps requests \
  sparse_attention teams; do
  programs+=("$build"/tests/test_"$name"*)
done
programs+=("$build"/bin/pecia*)
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
  # PMIx, by which Open MPI starts ranks: its plugins and texts, in a folder that PMIX_PKGLIBDIR and others can move.
  pmix=$(ldd "$bundle"/openmpi/lib/*/openmpi*/lib/openmpi*/mca_pmix_*.so "$bundle"/openmpi/lib/*/openmpi*/mca_pmix_*.so \
    2>/dev/null | sed -nE 's/^[ \t]*libpmix\.so[^ ]* => ([^ ]+) .*/\1/p' | head -n 1)
  if [[ -n $pmix ]]; then
    from=$(dirname "$(realpath "$pmix")")
    if [[ -d $from/pmix ]]; then
      mkdir -p "$bundle/pmix/lib" "$bundle/pmix/share"
      cp -rL "$from/pmix" "$bundle/pmix/lib/"
      [[ ! -d $from/../share/pmix ]] || cp -rL "$from/../share/pmix" "$bundle/pmix/share/"
    fi
  fi
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
: >"$bundle/optional-libraries"
if [[ -n $cuda_major ]]; then
  printf '%s\n' libcudnn.so.9 "libnvrtc.so.$cuda_major" >"$bundle/optional-libraries"
fi

cp -r "$root/tests/goldens" "$bundle/goldens"
(cd "$root/scripts" && cp --parents pecia_tools/{,bench/,gpu/}__init__.py pecia_tools/command.py \
  pecia_tools/bench/model{,_*}.py pecia_tools/gpu/{sdpa,goldens,table}.py "$bundle")
install -m 755 "$root/tests/support/own_hostid.sh" "$root/scripts/pecia_tools/gpu/bundle_run.sh" "$bundle"
mv "$bundle/bundle_run.sh" "$bundle/run"
install -m 755 "$root/scripts/gpu-check.sh" "$bundle/gpu-check.sh"
if [[ -n $nccl ]]; then
  mkdir "$bundle/nccl"
  (cd "$root/scripts" && python3 -m pecia_tools.gpu.thin_library "$nccl" "$bundle/nccl/libnccl.so.2" >&2)
fi
mkdir -p "$(dirname "$output")"
# The programs hold much of the same code, which a dictionary of that size finds again.
tar -C "$work" -cf - pecia-cuda | xz --lzma2=preset=1,dict=192MiB >"$output"
bytes=$(stat -c %s "$output")
echo "bundle: $output, $((bytes >> 20)) MiB, programs: $(cd "$bundle/bin" && echo *)" >&2
if ((bytes > most_bytes)); then
  echo "bundle: that is more than $((most_bytes >> 20)) MiB" >&2
  exit 1
fi
