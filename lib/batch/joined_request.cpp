// SPDX-License-Identifier: Apache-2.0
#include "lib/batch/joined_request.hpp"

#include <algorithm>
#include <span>

#include "lib/core/error.hpp"

namespace pecia::batch {

std::vector<RequestGroup> grouped(const Inputs& inputs,
                                  const std::vector<const InputRequest*>& requests) {
  const auto& prefixes = inputs.shared_prefixes();
  std::vector<int64_t> prefix_of(inputs.requests().size(), -1);
  for (size_t prefix = 0; prefix < prefixes.size(); ++prefix)
    for (const int64_t request : prefixes[prefix].requests)
      prefix_of.at(request) = static_cast<int64_t>(prefix);
  std::vector<RequestGroup> groups;
  std::vector<int64_t> place(prefixes.size(), -1);  // in groups
  for (const InputRequest* request : requests) {
    const int64_t prefix = prefix_of[request - inputs.requests().data()];
    const bool begins = prefix < 0 || place[prefix] < 0;
    if (begins) groups.push_back({{}, prefix < 0 ? 0 : prefixes[prefix].tokens, 0});
    if (begins && prefix >= 0) place[prefix] = std::ssize(groups) - 1;
    RequestGroup& group = prefix < 0 ? groups.back() : groups[place[prefix]];
    group.requests.push_back(request);
    group.work += request->work;
  }
  return groups;
}

std::optional<schedule::Request> joined(const std::vector<schedule::Request>& requests,
                                        int64_t tokens) {
  schedule::Request all;
  all.followup = io::Followup::fork;
  const auto& first = requests.front().turns.front().tokens;
  PECIA_CHECK(std::ssize(first) > tokens, "{} of {} tokens are shared", tokens, first.size());
  const auto beginning = std::span(first).first(tokens);
  all.turns.emplace_back().row = schedule::Turn::no_row;
  all.turns.front().tokens.assign(beginning.begin(), beginning.end());
  // Answers that earlier starts began come first.
  for (const bool began : {true, false})
    for (const schedule::Request& request : requests) {
      if (request.turns.front().answer.tokens.empty() == began) continue;
      const auto& prompt = request.turns.front().tokens;
      const bool begins_so = std::ssize(prompt) > tokens &&
                             std::ranges::equal(std::span(prompt).first(tokens), beginning);
      if (!begins_so) return {};
      const size_t first = all.turns.size();
      all.turns.insert(all.turns.end(), request.turns.begin(), request.turns.end());
      for (size_t turn = first; turn + 1 < all.turns.size(); ++turn) all.turns[turn].goes_on = true;
      schedule::Turn& joins = all.turns[first];
      joins.tokens.erase(joins.tokens.begin(), joins.tokens.begin() + tokens);
      joins.shared_tokens = static_cast<int32_t>(tokens);
    }
  return all;
}

}  // namespace pecia::batch
