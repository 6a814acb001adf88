// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/rates_cache.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/files/disk/strict_json.hpp"
#include "lib/ranks/cluster/machine.hpp"

namespace pecia::measure {
namespace {

namespace fs = std::filesystem;

constexpr const char* schema = "pecia.rates/2";

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

double positive(const nlohmann::json& rates, const char* name) {
  const auto value = rates.at(name).get<double>();
  if (!(value > 0) || !std::isfinite(value)) fail<InputError>("{} is {}", name, value);
  return value;
}

}  // namespace

std::optional<fs::path> rates_cache_path() {
  if (!environment("PECIA_NO_CACHE").empty()) return {};
  fs::path folder = environment("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {
    const std::string home = environment("HOME");
    if (home.empty()) return {};
    folder = fs::path(home) / ".cache";
  }
  return folder / "pecia" / "rates.json";
}

CachedRates read_rates(const fs::path& path) {
  CachedRates cached;
  std::error_code error;
  if (!fs::exists(path, error) && !error) return cached;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  try {
    if (!in || text.fail()) fail<InputError>("it cannot be read");
    const nlohmann::json file = io::parse_strict_json(path, text.str());
    if (file.at("schema") != schema) fail<InputError>("its schema is not {}", schema);
    for (const auto& [key, rates] : file.at("rates").items())
      cached.by_key[key] = {positive(rates, "attention_flops"), positive(rates, "ring_bandwidth"),
                            positive(rates, "all_to_all_bandwidth")};
  } catch (const std::exception& bad) {  // also thrown by JSON's accessors
    return {{}, bad.what()};
  }
  return cached;
}

void write_rates(const fs::path& path, const std::map<std::string, parallel::RingRates>& by_key) {
  nlohmann::ordered_json file = {{"schema", schema}, {"rates", nlohmann::ordered_json::object()}};
  for (const auto& [key, rates] : by_key)
    file["rates"][key] = {{"attention_flops", rates.flops},
                          {"ring_bandwidth", rates.bandwidth},
                          {"all_to_all_bandwidth", rates.all_to_all_bandwidth}};
  // A name of its own comes first: hosts share a home folder, and jobs start together.
  const fs::path own = fmt::format("{}.{}-{}", path.string(), cluster::host_name(), getpid());
  report::write_atomically(own, json_text(file, 2) + "\n");
  std::error_code error;
  fs::rename(own, path, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(own, ignored);
  fail<SystemError>("{}: cannot be replaced: {}", path.string(), error.message());
}

}  // namespace pecia::measure
