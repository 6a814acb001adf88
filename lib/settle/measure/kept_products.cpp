// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/kept_products.hpp"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/files/disk/strict_json.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/measure/rates_cache.hpp"

namespace pecia::measure {
namespace {

namespace fs = std::filesystem;

constexpr const char* products_schema = "pecia.products/1";

std::optional<fs::path> products_path(const std::string& key) {
  const auto rates = rates_cache_path();
  if (!rates) return {};
  return rates->parent_path() / fmt::format("products-{:016x}.json", std::hash<std::string>()(key));
}

kernels::MatmulKind products_named(const std::string& name) {
  for (const kernels::MatmulKind products : kernels::all_matmul_kinds)
    if (name_of(products) == name) return products;
  fail<InputError>("products {}", name);
}

ProductTime product_time(const nlohmann::json& json) {
  const ProductTime time{products_named(json.at("products")), json.at("packed"), json.at("rows"),
                         json.at("seconds")};
  if (time.rows < 1 || !(time.seconds > 0) || !std::isfinite(time.seconds))
    fail<InputError>("{} rows in {} s", time.rows, time.seconds);
  return time;
}

std::vector<ProductTime> parse_products_file(const fs::path& path, const std::string& key,
                                             const std::string& text) {
  const nlohmann::json file = io::parse_strict_json(path, text);
  if (file.at("schema") != products_schema || file.at("key") != key)
    fail<InputError>("of another key");
  std::vector<ProductTime> times;
  for (const auto& time : file.at("times")) times.push_back(product_time(time));
  return times;
}

}  // namespace

std::string products_key(comm::Communicator& world, const std::vector<kernels::MatmulKind>& kinds,
                         DType weights, int threads) {
  const auto host = world.split_by_host();
  std::set<std::string> cpus;
  const std::string mine = fmt::format("{} {}", cluster::cpu_facts().model, name_of(isa()));
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine))))
    cpus.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string_view> names;
  for (const kernels::MatmulKind kind : kinds) names.push_back(name_of(kind));
  const BuildInfo& build = build_info();
  return fmt::format(
      "{} · products {} · weights {} · {} threads per rank · {} ranks per host · {} {}",
      fmt::join(cpus, ", "), fmt::join(names, ", "), name_of(weights),
      world.all_reduce_max(threads), world.all_reduce_max(host->size()), build.version,
      build.commit);
}

bool keeps_products() {
  return rates_cache_path().has_value();
}

std::optional<std::vector<ProductTime>> kept_products(const std::string& key) {
  const auto path = products_path(key);
  if (!path) return {};
  std::ifstream in(*path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || text.str().empty()) return {};
  try {
    return parse_products_file(*path, key, text.str());
  } catch (const std::exception&) {  // also thrown by JSON's accessors
    return {};
  }
}

std::vector<ProductTime> keep_products(const std::string& key,
                                       const std::vector<ProductTime>& times) {
  const auto path = products_path(key);
  if (!path) return times;
  if (auto first = kept_products(key)) return *first;
  nlohmann::ordered_json file{
      {"schema", products_schema}, {"key", key}, {"times", nlohmann::ordered_json::array()}};
  for (const ProductTime& time : times)
    file["times"].push_back({{"products", std::string(name_of(time.products))},
                             {"packed", time.packed},
                             {"rows", time.rows},
                             {"seconds", time.seconds}});
  // A name of its own comes first: hosts share a home folder, and jobs start together.
  const fs::path own = fmt::format("{}.{}-{}", path->string(), cluster::host_name(), getpid());
  report::write_atomically(own, json_text(file, 2) + "\n");
  std::error_code error;
  fs::rename(own, *path, error);
  if (error) {
    std::error_code ignored;
    fs::remove(own, ignored);
    fail<SystemError>("{}: cannot be replaced: {}", path->string(), error.message());
  }
  return kept_products(key).value_or(times);
}

}  // namespace pecia::measure
