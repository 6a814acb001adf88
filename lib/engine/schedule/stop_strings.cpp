// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/stop_strings.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

TextSearch::TextSearch(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    PECIA_CHECK(!text.empty(), "an empty stop string");
    std::vector<size_t> border(text.size() + 1, 0);
    for (size_t end = 1, length = 0; end < text.size(); ++end) {
      while (length > 0 && text[end] != text[length]) length = border[length];
      if (text[end] == text[length]) ++length;
      border[end + 1] = length;
    }
    patterns_.push_back({text, std::move(border)});
  }
  place_.matched.resize(patterns_.size(), 0);
}

std::optional<int64_t> TextSearch::read(const io::TextChange& change) {
  if (change.before == io::TextChange::Before::mark) mark_ = place_;
  if (change.before == io::TextChange::Before::rewind) place_ = mark_;
  for (const char byte : change.added)
    if (const auto found = read_byte(byte)) return found;
  return {};
}

std::optional<int64_t> TextSearch::read_byte(char byte) {
  ++place_.bytes;
  size_t longest = 0;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const Pattern& pattern = patterns_[i];
    size_t& matched = place_.matched[i];
    while (matched > 0 && pattern.text[matched] != byte) matched = pattern.border[matched];
    if (pattern.text[matched] == byte) ++matched;
    if (matched < pattern.text.size()) continue;
    longest = std::max(longest, matched);
    matched = pattern.border[matched];
  }
  if (longest == 0) return {};
  return place_.bytes - static_cast<int64_t>(longest);
}

}  // namespace pecia::schedule
