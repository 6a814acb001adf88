// SPDX-License-Identifier: Apache-2.0
#include "lib/work/cluster_files/gpu_servers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "lib/base/core/error.hpp"
#include "lib/base/core/meant.hpp"

namespace pecia::cluster_files {
namespace {

/// A GPU, the preset that has its figures, and what is usual around it: 200 Gb/s per GPU beside A100s
/// and GH200s (DGX A100, JUPITER), 400 Gb/s beside H100s and H200s (DGX H100, DGX H200).
struct Gpu {
  std::string_view name, preset;
  int of_board = 8;  ///< GPUs that NVLink connects
  double network_gbs = 0;
};

constexpr std::array gpus{
    Gpu{"a100-40gb", "a100-p4d", 8, 25},   Gpu{"a100-80gb", "a100-80gb", 8, 25},
    Gpu{"a800-80gb", "a800-4x200", 8, 25}, Gpu{"h100-80gb", "h100-nvswitch", 8, 50},
    Gpu{"h100-96gb", "h100-gtt", 8, 50},   Gpu{"h200-141gb", "h200-nvswitch", 8, 50},
    Gpu{"gh200-96gb", "gh200", 4, 25},
};

/// The one GPU that has all parts of the name: h200 is enough, h100 is not.
const Gpu& gpu_of(const std::string& name) {
  std::vector<KnownName> known;
  for (const Gpu& gpu : gpus) known.push_back({std::string(gpu.name)});
  const std::vector<std::string> meant = meant_by(name, known);
  const auto only = std::ranges::find(gpus, meant.size() == 1 ? meant.front() : "", &Gpu::name);
  if (only != gpus.end()) {
    const std::vector<std::string> parts = parts_of_name(only->name);
    if (std::ranges::all_of(parts_of_name(name), [&](const std::string& part) {
          return std::ranges::find(parts, part) != parts.end();
        }))
      return *only;
  }
  if (!meant.empty())
    fail<InputError>("--gpu {}: no GPU of this name is known; did you mean {}?", name,
                     any_of_text(meant));
  fail<InputError>(
      "--gpu {}: no GPU of this name is known; the known ones are {}, and --cluster FILE describes "
      "others",
      name, fmt::join(known_gpus(), ", "));
}

}  // namespace

std::vector<std::string> known_gpus() {
  std::vector<std::string> names;
  for (const Gpu& gpu : gpus) names.emplace_back(gpu.name);
  return names;
}

GpuServers gpu_servers(const std::string& name, std::optional<int> per_server) {
  const Gpu& gpu = gpu_of(name);
  const int count = per_server.value_or(gpu.of_board);
  if (count < 1 || count > gpu.of_board)
    fail<InputError>(
        "--per-node {}: a board of {} connects 1 to {} GPUs; --cluster FILE describes other "
        "servers",
        count, gpu.name, gpu.of_board);
  Cluster cluster = cluster_of(std::string(gpu.preset));
  cluster.ranks_per_server = count;
  for (const comm::LinkLevel level : {comm::LinkLevel::rack, comm::LinkLevel::system}) {
    Link& link = cluster.links[static_cast<size_t>(level)];
    link.gbs = gpu.network_gbs;
    link.shared = false;
    link.adapters = 1;
  }
  const double server_gbs = cluster.links[static_cast<size_t>(comm::LinkLevel::server)].gbs;
  std::string assumed = fmt::format(
      "{} GPUs in a server{}, {} GB/s between two of them, and {} GB/s for each GPU between "
      "servers "
      "({} Gb/s)",
      count, per_server ? "" : ", as its board has", server_gbs, gpu.network_gbs,
      8 * gpu.network_gbs);
  return {fmt::format("servers of {} × {}", count, gpu.name), std::move(assumed),
          std::move(cluster)};
}

}  // namespace pecia::cluster_files
