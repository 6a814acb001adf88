// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/format.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace pecia::report {
namespace {

bool printable(double value) {
  return std::isfinite(value) && value >= 0;
}

/// One decimal, unless the value rounds to 100 or more.
std::string three_digits(double value) {
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!printable(seconds)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const double rounded_s = std::round(seconds);
  if (rounded_s < 60) return fmt::format("{:.0f} s", rounded_s);
  if (rounded_s < 3600)
    return fmt::format("{:.0f} min {:.0f} s", std::floor(rounded_s / 60), std::fmod(rounded_s, 60));
  const double rounded_min = std::round(seconds / 60);
  if (rounded_min < 24 * 60)
    return fmt::format("{:.0f} h {:.0f} min", std::floor(rounded_min / 60),
                       std::fmod(rounded_min, 60));
  const double rounded_h = std::round(seconds / 3600);
  return fmt::format("{:.0f} d {:.0f} h", std::floor(rounded_h / 24), std::fmod(rounded_h, 24));
}

std::string format_count(double count) {
  if (!printable(count)) return "?";
  if (count == std::floor(count) && count < 1000) return fmt::format("{:.0f}", count);
  constexpr std::array units{"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; count >= 999.5 && unit + 1 < units.size(); ++unit) count /= 1000;
  return three_digits(count) + units[unit];
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0) return "?";
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; amount >= 1023.95 && unit + 1 < units.size(); ++unit) amount /= 1024;
  return fmt::format("{:.1f} {}", amount, units[unit]);
}

std::string format_percent(double share) {
  if (!printable(share)) return "?";
  const double percent = 100 * share;
  if (percent == 0) return "0 %";
  return percent < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

}  // namespace pecia::report
