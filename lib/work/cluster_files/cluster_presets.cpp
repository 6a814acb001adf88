// SPDX-License-Identifier: Apache-2.0
/// The machines of the papers, and others that are common, as cluster files. Peaks and links are what
/// the papers or the makers say. Shares are fitted where a comment says so; the others are guesses
/// until a run has measured them.
///
/// Of recurrences nothing is measured: figures are arithmetic. A warp gives some 200 instructions for a
/// row of a delta net, of which 96 are its products (so 0.45 of fp32's peak at most), and with what it
/// waits for, some 340 cycles pass: 0.2 µs at 1.7 GHz, 0.25 µs at 1.4 GHz. A chunk of 64 rows has 256 products
/// m16n8k8 of TF32 for each warp, one in some 6 cycles, and waits for memory and other warps some 700
/// more: 1.4 µs at 1.7 GHz. The parts of chunks, and launches, make it 2 µs (kernels/cuda.md).

#include <algorithm>
#include <array>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/meant.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::cluster_files {
namespace {

struct Preset {
  std::string_view name, text;
};

constexpr std::array presets{
    Preset{"h100-gtt", R"(# Context Parallelism …, §4: 8 × H100-96GB at 500 W, 400 Gb/s RDMA per GPU
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: H100-96GB, backend: cuda, flops: {fp32: 5e13, bf16: 8e14, fp8: 1.6e15}, memory_gbs: 2400, memory_gib: 89.4}
links:
  server: {gbs: 450, us: 3, shared: false}
  # A decode step's messages and its all-to-all on two hosts took 32.3 and 81.1 µs.
  rack: {gbs: 50, us: 32, shared: false, exchange_us: 41}
  system: {gbs: 50, us: 34, shared: false, exchange_us: 41}
efficiency:
  gemm: 0.64  # of the peaks of fp8 (feed-forward) and bf16; fitted by pecia plan --papers
  # The others are those of the paper's op times, at 2.5 and 10 % of new tokens, and its 540 TFLOP/s.
  attention: {rows: [[800, 0.633], [3200, 0.652], [32000, 0.675]]}
  recurrence: 0.45
  recurrence_chunks: 0.15  # arithmetic, not measured
  copy: 0.8
  send: {bytes: [[3.28e6, 0.49], [1.31e7, 0.512], [1.64e7, 0.55]]}
  collective: {bytes: [[3.28e6, 0.56], [1.31e7, 0.828]]}
  one_peer: {bytes: [[3.28e6, 0.49], [1.31e7, 0.512], [1.64e7, 0.55]]}  # as send
overhead: {op_us: 4, step_us: 500, recurrent_row_us: 0.2, recurrent_chunk_us: 2}
)"},
    Preset{"h100-gti", R"(# Context Parallelism …, §4: the same GPUs, 100 Gb/s TCP per GPU
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: H100-96GB, backend: cuda, flops: {fp32: 5e13, bf16: 8e14, fp8: 1.6e15}, memory_gbs: 2400, memory_gib: 89.4}
links:
  server: {gbs: 450, us: 3, shared: false}
  rack: {gbs: 12.5, us: 30, shared: false}
  system: {gbs: 12.5, us: 40, shared: false}
efficiency:
  gemm: 0.64
  attention: {rows: [[800, 0.633], [3200, 0.652], [32000, 0.675]]}
  recurrence: 0.45
  recurrence_chunks: 0.15  # arithmetic, not measured
  copy: 0.8
  send: 0.24  # 3 GB/s achieved by each rank
  collective: 0.8
  one_peer: 0.24
overhead: {op_us: 4, step_us: 500, recurrent_row_us: 0.2, recurrent_chunk_us: 2}
)"},
    Preset{"a100-p4d", R"(# AWS p4d.24xlarge: 8 × A100-40GB, four adapters of 100 Gb/s per server
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: A100-40GB, backend: cuda, flops: {fp32: 1.95e13, bf16: 3.12e14}, memory_gbs: 1555, memory_gib: 37.25}
links:
  server: {gbs: 300, us: 3, shared: false}
  rack: {gbs: 50, us: 15, shared: true, adapters: 4}
  system: {gbs: 50, us: 20, shared: false}
efficiency:
  gemm: 0.65
  attention: 0.55
  recurrence: 0.45
  copy: 0.8
  send: 0.7
  collective: 0.7
overhead: {op_us: 5, step_us: 500, recurrent_row_us: 0.25}
)"},
    Preset{
        "a100-80gb",
        R"(# DGX A100 640GB, data sheets of NVIDIA: 8 × A100-SXM-80GB behind NVSwitch, a 200 Gb/s adapter per GPU
# NVLink has 600 GB/s in both directions together. Shares are guesses.
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: A100-80GB, backend: cuda, flops: {fp32: 1.95e13, bf16: 3.12e14}, memory_gbs: 2039, memory_gib: 74.5}
links:
  server: {gbs: 300, us: 3, shared: false}
  rack: {gbs: 25, us: 8, shared: false}
  system: {gbs: 25, us: 10, shared: false}
efficiency:
  gemm: 0.65
  attention: 0.55
  recurrence: 0.45
  copy: 0.8
  send: 0.7
  collective: 0.7
overhead: {op_us: 5, step_us: 500, recurrent_row_us: 0.25}
)"},
    Preset{"h100-nvswitch", R"(# 8 × H100-80GB behind NVSwitch, 400 Gb/s per GPU between servers
# One GPU described itself (apps/results/h100.md); links were not measured.
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: H100-80GB, backend: cuda, flops: {fp32: 5.15e13, bf16: 7.79e14, fp8: 1.37e15}, memory_gbs: 2970, memory_gib: 79.2}
links:
  server: {gbs: 450, us: 3, shared: false}
  rack: {gbs: 50, us: 8, shared: false}
  system: {gbs: 50, us: 10, shared: false}
efficiency:
  gemm:
    rows:
      [[1, 0.00386], [2, 0.00767], [4, 0.0153], [8, 0.0301], [16, 0.0587], [32, 0.109], [64, 0.212], [128, 0.397],
       [256, 0.648], [512, 0.945], [1024, 1]]
    depth: [[512, 0.525], [1024, 0.716], [2048, 0.859], [4096, 0.935], [8192, 0.973], [16384, 1]]
    width: [[256, 0.607], [512, 0.855], [1024, 0.972], [2048, 0.999], [8192, 1], [16384, 0.972]]
  attention:
    rows_at_depth:
      - [256, [[1, 0.001], [16, 0.00439], [64, 0.0169], [256, 0.0543]]]
      - [1024, [[1, 0.00135], [16, 0.0067], [64, 0.0267], [256, 0.24], [1024, 0.409]]]
      - [4096, [[1, 0.00527], [16, 0.026], [64, 0.0992], [256, 0.376], [1024, 0.68], [4096, 0.716]]]
      - [16384, [[1, 0.0105], [16, 0.0822], [64, 0.147], [256, 0.429], [1024, 0.83], [4096, 0.826]]]
  recurrence: 0.45
  recurrence_chunks: 0.15  # arithmetic, not measured
  copy: {bytes: [[49152, 0.0731], [393216, 0.202], [3145728, 0.664], [25165824, 0.903], [201326592, 1]]}
  stream: {bytes: [[1048576, 0.0441], [8388608, 0.178], [33554432, 0.621], [134217728, 0.654]]}
  weights: {bytes: [[2097152, 0.192], [8388608, 0.631], [33554432, 1]]}
  send: 0.7
  collective: 0.7
overhead: {op_us: 2.08, step_us: 26.4, recurrent_row_us: 0.2, recurrent_chunk_us: 2}
)"},
    Preset{"h200-nvswitch", R"(# 8 × H200 behind NVSwitch, 400 Gb/s per GPU between servers
# Shares of one GPU's peaks were measured (apps/results/h100.md), links were not. fp8 is what products reach, over gemm.
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: H200-141GB, backend: cuda, flops: {fp32: 6.7e13, bf16: 9.89e14, fp8: 1.75e15}, memory_gbs: 4800, memory_gib: 131.3}
links:
  server: {gbs: 450, us: 3, shared: false}
  rack: {gbs: 50, us: 8, shared: false}
  system: {gbs: 50, us: 10, shared: false}
efficiency:
  gemm: 0.72
  attention: 0.63
  recurrence: 0.45
  recurrence_chunks: 0.15  # arithmetic, not measured
  copy: 0.78
  stream: 0.72
  send: 0.7
  collective: 0.7
overhead: {op_us: 3, step_us: 100, recurrent_row_us: 0.2, recurrent_chunk_us: 2}
)"},
    Preset{
        "gh200",
        R"(# 4 × GH200-96GB: the GPUs by NVIDIA's data sheet, the node as JUPITER's (jsc, "JUPITER Hardware Overview")
# Each two GPUs have 150 GB/s of NVLink in each direction, each GPU an adapter of 200 Gb/s, and NVLink-C2C to the LPDDR5X
# of its host. The chip is that of the H200, whose shares were measured (apps/results/h100.md).
ranks_per_server: 4
servers_per_rack: 48
rank:
  {name: GH200-96GB, backend: cuda, flops: {fp32: 6.7e13, bf16: 9.89e14, fp8: 1.75e15}, memory_gbs: 4000, memory_gib: 89.4, host_gbs: 450}
links:
  server: {gbs: 150, us: 3, shared: false}
  rack: {gbs: 25, us: 8, shared: false}
  system: {gbs: 25, us: 10, shared: false}
efficiency:
  gemm: 0.72
  attention: 0.63
  recurrence: 0.45
  recurrence_chunks: 0.15  # arithmetic, not measured
  copy: 0.78
  stream: 0.72
  send: 0.7
  collective: 0.7
overhead: {op_us: 3, step_us: 100, recurrent_row_us: 0.2, recurrent_chunk_us: 2}
)"},
    Preset{"a800-4x200", R"(# LoongServe, §7: 8 × A800-80GB, four 200 Gb/s adapters per server
ranks_per_server: 8
servers_per_rack: 16
rank:
  {name: A800-80GB, backend: cuda, flops: {fp32: 1.95e13, bf16: 3.12e14}, memory_gbs: 2039, memory_gib: 74.5}
links:
  server: {gbs: 200, us: 3, shared: false}
  rack: {gbs: 100, us: 10, shared: true, adapters: 4}
  system: {gbs: 100, us: 12, shared: false}
efficiency:
  gemm: 0.65
  attention: 0.55
  recurrence: 0.45
  copy: 0.8
  send: 0.7
  collective: 0.7
overhead: {op_us: 5, step_us: 500, recurrent_row_us: 0.25}
)"},
};

/// "H100-80GB", as the file names its ranks.
std::string rank_name_of(const Preset& preset) {
  return parse_cluster(std::string(preset.text), std::string(preset.name)).rank.name;
}

}  // namespace

std::vector<std::string> cluster_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

std::optional<std::string> preset_text(std::string_view name) {
  const auto found = std::ranges::find(presets, name, &Preset::name);
  return found == presets.end() ? std::nullopt : std::optional(std::string(found->text));
}

Cluster cluster_of(const std::string& preset_or_file) {
  if (const auto text = preset_text(preset_or_file)) return parse_cluster(*text, preset_or_file);
  if (std::filesystem::exists(preset_or_file)) return read_cluster(preset_or_file);
  std::vector<KnownName> known;
  for (const Preset& preset : presets)
    known.push_back({std::string(preset.name), rank_name_of(preset)});
  const std::vector<std::string> meant = meant_by(preset_or_file, known);
  if (!meant.empty())
    fail<InputError>(
        "{} is neither a file nor a cluster preset; did you mean {}? --gpu describes other servers",
        preset_or_file, any_of_text(meant));
  fail<InputError>(
      "{} is neither a file nor a cluster preset; the presets are {}, and --gpu describes other "
      "servers",
      preset_or_file, fmt::join(cluster_presets(), ", "));
}

}  // namespace pecia::cluster_files
