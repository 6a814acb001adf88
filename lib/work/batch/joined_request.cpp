// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/joined_request.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "lib/base/core/error.hpp"

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

namespace {

using batch::Request;
using batch::Turn;

/// Takes the first `tokens` tokens from the request's prompt and makes its turns branches.
void begin_after(int64_t tokens, Request& request) {
  auto& turns = request.turns;
  Turn& first = turns.front();
  first.tokens = {first.tokens.begin() + tokens, first.tokens.end()};
  first.shared_tokens = static_cast<int32_t>(tokens);
  if (request.followup == io::Followup::chain) {
    for (size_t turn = 0; turn + 1 < turns.size(); ++turn) turns[turn].goes_on = true;
    return;
  }
  const auto open = std::ranges::find_if(
      turns, [](const Turn& turn) { return !turn.finished && turn.refused.empty(); });
  if (open != turns.end()) open->shared_tokens = static_cast<int32_t>(tokens);
  for (Turn& later : std::span(turns).subspan(1)) {
    later.tokens.insert(later.tokens.begin(), first.tokens.begin(), first.tokens.end());
    later.stem_end_tokens = static_cast<int32_t>(first.tokens.size());
    if (!first.refused.empty() && !later.finished && later.refused.empty())
      later.refused = "an earlier turn of this request failed: " + first.refused;
  }
}

}  // namespace

std::optional<Request> joined(const std::vector<Request>& requests, int64_t tokens) {
  Request all;
  all.followup = io::Followup::fork;
  const auto& prompt = requests.front().turns.front().tokens;
  PECIA_CHECK(std::ssize(prompt) > tokens, "{} of {} tokens are shared", tokens, prompt.size());
  const auto beginning = std::span(prompt).first(tokens);
  const auto begins_so = [&](const Request& request) {
    const auto& own = request.turns.front().tokens;
    return std::ssize(own) > tokens && std::ranges::equal(std::span(own).first(tokens), beginning);
  };
  if (!std::ranges::all_of(requests, begins_so)) return {};
  all.turns.emplace_back().row = Turn::no_row;
  all.turns.front().tokens.assign(beginning.begin(), beginning.end());
  std::vector<Turn> not_begun;
  for (Request request : requests) {
    begin_after(tokens, request);
    bool begun = false;  // of the branch
    for (bool goes_on = false; Turn & turn : request.turns) {
      if (!goes_on) begun = !turn.answer.tokens.empty();
      goes_on = turn.goes_on;
      (begun ? all.turns : not_begun).push_back(std::move(turn));
    }
  }
  std::ranges::move(not_begun, std::back_inserter(all.turns));
  return all;
}

}  // namespace pecia::batch
