// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/watch/watch_words.hpp"

#include <fmt/format.h>

namespace pecia::watch {
namespace {

/// {0, 1, 2, 5} → "ranks 0-2,5"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[begin]);
    if (end - begin > 1) text += fmt::format("-{}", ranks[end - 1]);
    begin = end;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", text);
}

bool has_arrived(const RankRecord& rank, const RankRecord& waiting) {
  return rank.number_in(waiting.group).value_or(0) >= waiting.number;
}

}  // namespace

std::string name_of(int rank, const RankRecord& record) {
  return fmt::format("rank {} (host {})", rank, record.host.data());
}

std::string place_of(const RankRecord& record) {
  std::string text = fmt::format("in phase {}", record.phase.data());
  if (record.pass >= 0) text += fmt::format(", pass {}", record.pass);
  if (record.team >= 0)
    text += fmt::format(", instance {} in team {}", record.instance, record.team);
  if (record.layer >= 0) text += fmt::format(", layer {}", record.layer);
  if (record.span[0] != '\0') text += fmt::format(", last span {}", record.span.data());
  if (record.waits())
    text += fmt::format(", waiting for {} #{}", record.operation.data(), record.number);
  return text;
}

std::string arrivals(const RankRecord& waiting, const RankRecords& all, int told) {
  if (!waiting.waits()) return {};
  constexpr size_t most_told = 4;
  std::vector<int> arrived, missing;
  std::string places;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank] || !all[rank]->number_in(waiting.group)) continue;
    if (has_arrived(*all[rank], waiting)) {
      arrived.push_back(static_cast<int>(rank));
      continue;
    }
    missing.push_back(static_cast<int>(rank));
    if (missing.size() <= most_told && missing.back() != told)
      places += fmt::format("; {} is {}", name_of(static_cast<int>(rank), *all[rank]),
                            place_of(*all[rank]));
  }
  return fmt::format("{} #{}: arrived: {}; not arrived: {}{}", waiting.operation.data(),
                     waiting.number, arrived.empty() ? "nobody" : ranks_text(arrived),
                     missing.empty() ? "nobody" : ranks_text(missing), places);
}

const RankRecord* wait_for(int rank, const RankRecords& all) {
  const auto& culprit = all.at(rank);
  const RankRecord* found = nullptr;
  const auto misses = [&](const RankRecord& one) {
    return culprit && culprit->number_in(one.group) && !has_arrived(*culprit, one);
  };
  for (const auto& one : all) {
    if (!one || !one->waits()) continue;
    const bool nearer =
        found != nullptr && misses(*one) &&
        (!misses(*found) || (one->group == found->group && one->number < found->number));
    if (found == nullptr || nearer) found = &*one;
  }
  return found;
}

}  // namespace pecia::watch
