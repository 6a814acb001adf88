// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/meant.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "lib/base/core/mistyped.hpp"

namespace pecia {
namespace {

using Parts = std::set<std::string>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

bool has_digits(const std::string& part) {
  return std::ranges::any_of(part, is_digit);
}
bool has_letters(const std::string& part) {
  return std::ranges::any_of(part, is_letter);
}
/// llama or h100, not 70b.
bool is_name(const std::string& part) {
  return is_letter(part.front());
}

/// The names of `names` that are nearest to `typed`, of those that are at most `most` away.
std::vector<std::string> nearest_of(std::string_view typed, const std::vector<std::string>& names,
                                    size_t most) {
  std::vector<std::string> nearest;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(typed, name);
    if (distance > most) continue;
    if (distance < most) nearest.clear(), most = distance;
    nearest.push_back(name);
  }
  return nearest;
}

}  // namespace

std::vector<std::string> parts_of_name(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  std::string text(name.substr(name.rfind('/') + 1));
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  std::vector<std::string> parts;
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto has_unit = [&](size_t i) {
    while (is_digit(at(i))) ++i;
    return is_letter(at(i));
  };
  for (size_t i = 0; i < text.size();) {
    std::string part;
    const auto take = [&](auto belongs) {
      while (i < text.size() && belongs(text[i])) part += text[i++];
    };
    take(is_letter);
    if (part.empty() || (part.size() == 1 && part != "v" && is_digit(at(i)))) {
      take(is_digit);
      const bool is_point = at(i) == '.' || (at(i) == '_' && !has_unit(i + 1));  // some write 2_5
      if (!part.empty() && is_point && is_digit(at(i + 1))) {
        part += '.', ++i;
        take(is_digit);
      }
      take(is_letter);
    }
    if (part.empty())
      ++i;
    else
      parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<std::string> meant_by(std::string_view typed, std::span<const KnownName> known) {
  constexpr size_t longest = 200;  // longer texts are no names
  if (typed.size() > longest) return {};
  std::vector<Parts> parts;
  Parts all;
  for (const KnownName& each : known) {
    Parts& of = parts.emplace_back();
    for (const std::string& name : {each.name, each.also})
      for (const std::string& part : parts_of_name(name)) of.insert(part);
    all.insert(of.begin(), of.end());
  }
  const std::vector<std::string> listed = parts_of_name(typed);
  const Parts asked(listed.begin(), listed.end());
  const bool has_names = std::ranges::any_of(asked, is_name);
  const bool has_unknown_words = std::ranges::any_of(
      asked, [&](const std::string& part) { return !has_digits(part) && !all.contains(part); });

  std::vector<std::string> best, others;
  size_t most = 0;
  for (size_t i = 0; i < known.size(); ++i) {
    const auto has = [&](const std::string& part) { return parts[i].contains(part); };
    const bool contradicts = std::ranges::any_of(asked, [&](const std::string& part) {
      return has_digits(part) && !has(part) && (has_letters(part) || all.contains(part));
    });
    if (contradicts) continue;
    if (may_mean(typed, known[i].name)) others.push_back(known[i].name);
    const bool shares_name = std::ranges::any_of(
        asked, [&](const std::string& part) { return is_name(part) && has(part); });
    const auto shared = static_cast<size_t>(std::ranges::count_if(asked, has));
    if (shared == 0 || shared < most || (has_names && !shares_name)) continue;
    if (shared > most) best.clear(), most = shared;
    best.push_back(known[i].name);
  }
  if (best.empty()) return nearest_of(typed, others, std::numeric_limits<size_t>::max());
  // A word that nobody knows may be mistyped, or it says what does not matter here.
  if (!has_unknown_words) return best;
  constexpr size_t slip = 2;
  const std::vector<std::string> nearest = nearest_of(typed, best, slip);
  return nearest.empty() ? best : nearest;
}

std::string any_of_text(std::span<const std::string> names) {
  if (names.empty()) return "";
  const auto first = names.first(names.size() - 1);
  return first.empty() ? names.back()
                       : fmt::format("{} or {}", fmt::join(first, ", "), names.back());
}

}  // namespace pecia
