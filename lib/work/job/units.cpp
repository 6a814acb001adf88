// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace pecia::job {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array byte_units{Unit{"", 1},         Unit{"B", 1},        Unit{"kB", 1e3},
                                Unit{"KB", 1e3},     Unit{"MB", 1e6},     Unit{"GB", 1e9},
                                Unit{"TB", 1e12},    Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20},
                                Unit{"GiB", 0x1p30}, Unit{"TiB", 0x1p40}, Unit{"K", 0x1p10},
                                Unit{"M", 0x1p20},   Unit{"G", 0x1p30},   Unit{"T", 0x1p40}};
constexpr std::array time_units{Unit{"d", 86400}, Unit{"h", 3600}, Unit{"min", 60},
                                Unit{"m", 60},    Unit{"s", 1},    Unit{"ms", 1e-3}};

/// Takes an unsigned decimal number off the front; it does not accept "1e5", "inf" and "nan".
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

std::string_view take_letters(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() &&
         ((text[count] >= 'a' && text[count] <= 'z') || (text[count] >= 'A' && text[count] <= 'Z')))
    ++count;
  const std::string_view letters = text.substr(0, count);
  text.remove_prefix(count);
  return letters;
}

/// Reads "1:30:00", "90:00", "2-12:30". The first number may have any size; each later one stays
/// below the next larger unit, so "1:90:00" is refused as a slip.
std::optional<double> parse_slurm_seconds(std::string_view text) {
  const auto take_whole = [&text](int64_t limit) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || text[0] == '-' || value >= limit) return std::nullopt;
    text.remove_prefix(end - text.data());
    return value;
  };
  constexpr int64_t largest = 1'000'000'000;
  const bool with_days = text.find('-') != std::string_view::npos;
  std::vector<int64_t> numbers;
  if (with_days) {
    const auto days = take_whole(largest);
    if (!days || text.empty() || text[0] != '-') return std::nullopt;
    numbers.push_back(*days);
  }
  do {
    if (!numbers.empty()) text.remove_prefix(1);  // the separator
    const bool is_hours = with_days && numbers.size() == 1;
    const auto number = take_whole(numbers.empty() ? largest : is_hours ? 24 : 60);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  } while (!text.empty() && text[0] == ':');
  if (!text.empty() || numbers.size() > (with_days ? 4u : 3u)) return std::nullopt;

  static constexpr std::array<double, 4> factors{86400, 3600, 60, 1};
  size_t unit =
      with_days ? 0 : factors.size() - numbers.size();  // without days the last is seconds
  double seconds = 0;
  for (const int64_t number : numbers) seconds += static_cast<double>(number) * factors[unit++];
  return seconds;
}

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  if (text.size() > 1 && text[0] == ' ') text.remove_prefix(1);
  for (const Unit& unit : byte_units) {
    if (text != unit.name) continue;
    const double bytes = std::round(*number * unit.factor);
    if (bytes >= 0x1p53 || (unit.factor == 1 && bytes != *number)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::optional<double> parse_seconds(std::string_view text) {
  if (text.find_first_of(":-") != std::string_view::npos) return parse_slurm_seconds(text);
  double seconds = 0, last_factor = INFINITY;
  for (bool first = true; first || !text.empty(); first = false) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    const std::string_view name = take_letters(text);
    if (name.empty()) {
      if (first && text.empty()) return number;
      return std::nullopt;
    }
    double factor = 0;
    for (const Unit& unit : time_units)
      if (unit.name == name) factor = unit.factor;
    if (factor == 0 || factor >= last_factor) return std::nullopt;
    seconds += *number * factor;
    last_factor = factor;
  }
  if (!std::isfinite(seconds)) return std::nullopt;
  return seconds;
}

std::string format_seconds(double seconds) {
  if (seconds != std::floor(seconds) || seconds < 120 || seconds > 0x1p53) {
    std::array<char, 400> digits{};  // the longest fixed double has 325
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), seconds,
                                   std::chars_format::fixed);
    return std::string(digits.data(), end.ptr) + "s";
  }
  auto left = static_cast<int64_t>(seconds);
  std::string text;
  for (const Unit& unit : {Unit{"h", 3600}, Unit{"m", 60}, Unit{"s", 1}}) {
    const auto count = left / static_cast<int64_t>(unit.factor);
    left -= count * static_cast<int64_t>(unit.factor);
    if (count > 0) text += fmt::format("{}{}", count, unit.name);
  }
  return text;
}

}  // namespace pecia::job
