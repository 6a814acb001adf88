// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/kept_cluster.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "lib/base/core/isa.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/measure/rates_cache.hpp"

namespace pecia::measure {
namespace {

std::optional<std::filesystem::path> path_of(const std::string& key) {
  const auto rates = rates_cache_path();
  if (!rates) return {};
  return rates->parent_path() / fmt::format("cluster-{:016x}.yaml", std::hash<std::string>()(key));
}

std::string first_line(const std::string& key) {
  return "# " + key + "\n";
}

}  // namespace

std::string ranks_key(comm::Communicator& world, const attention::Compute& compute) {
  const auto host = world.split_by_host();
  const int64_t ranks_per_host = world.all_reduce_max(host->size());
  return fmt::format("{} {} {} · {} threads per rank · {} ranks · {} per host",
                     compute.device.info().name, cluster::cpu_facts().model, name_of(isa()),
                     compute.stream.num_threads(), world.size(), ranks_per_host);
}

void keep_cluster(const std::string& key, const cluster_files::Cluster& cluster) {
  if (const auto path = path_of(key))
    report::write_atomically(*path, first_line(key) + to_yaml(cluster));
}

std::optional<cluster_files::Cluster> kept_cluster(const std::string& key) try {
  const auto path = path_of(key);
  if (!path) return {};
  std::ifstream in(*path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || !text.str().starts_with(first_line(key))) return {};
  return cluster_files::parse_cluster(text.str(), path->string());
} catch (const Error&) {
  return {};
}

}  // namespace pecia::measure
