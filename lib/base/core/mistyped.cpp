// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/mistyped.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace pecia {

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  };
  // Rows i − 1, i and i + 1 of the table of distances between prefixes of a and of b.
  std::vector<size_t> before, row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({row[j] + !same(a[i], b[j]), row[j + 1] + 1, next[j] + 1});
      if (i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j]))
        next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    before = row;
    row.swap(next);
  }
  return row[b.size()];
}

bool may_mean(std::string_view typed, std::string_view known) {
  constexpr size_t longest = 64;  // keeps the table small for any input
  if (typed.size() > longest || known.size() > longest) return false;
  const size_t length = std::max(typed.size(), known.size());
  return edit_distance(typed, known) <= std::max(length / 3, std::min<size_t>(2, length / 2));
}

}  // namespace pecia
