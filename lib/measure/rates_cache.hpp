// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rates that earlier runs measured, in a small file of the user's cache. Losing it costs a
/// measurement, so nothing about it ever fails a run.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lib/parallel/ring_rule.hpp"

namespace pecia::measure {

/// $XDG_CACHE_HOME/pecia/rates.json, or ~/.cache/pecia/rates.json when that variable is unset or
/// not an absolute path. Absent: PECIA_NO_CACHE is set to something, or there is no home.
std::optional<std::filesystem::path> rates_cache_path();

struct CachedRates {
  std::map<std::string, parallel::RingRates> by_key;
  std::string damage;  ///< why a file that is there was not taken; empty: it was, or there is none
};
CachedRates read_rates(const std::filesystem::path& path);

/// Readers see the file before or the file after, however many processes write it: the last one
/// wins. Throws SystemError.
void write_rates(const std::filesystem::path& path,
                 const std::map<std::string, parallel::RingRates>& by_key);

}  // namespace pecia::measure
