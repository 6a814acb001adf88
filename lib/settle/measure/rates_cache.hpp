// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rates that earlier runs measured, in a small file of the user's cache. Losing it costs only a
/// new measurement, so no problem with it fails a run.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::measure {

/// $XDG_CACHE_HOME/pecia/rates.json, or ~/.cache/pecia/rates.json when that variable is unset or
/// not an absolute path. Absent where PECIA_NO_CACHE is not empty, or there is no home.
std::optional<std::filesystem::path> rates_cache_path();

struct CachedRates {
  std::map<std::string, parallel::RingRates> by_key;
  std::string damage;  ///< why an existing file was not used; empty: it was, or none exists
};
CachedRates read_rates(const std::filesystem::path& path);

/// Replaces the file. Readers see it as it was before or after, however many processes write it;
/// the last one wins. Throws SystemError.
void write_rates(const std::filesystem::path& path,
                 const std::map<std::string, parallel::RingRates>& by_key);

}  // namespace pecia::measure
