// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/base/core/error.hpp"

namespace pecia::app {
namespace {

constexpr int64_t most_requests = 1'000'000;

AskedRequests parse_one(const std::string& text) {
  const size_t times = text.find('x');
  AskedRequests asked{text, simulation::parse_shape(std::string_view(text).substr(0, times), text)};
  if (times == std::string::npos) return asked;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + times + 1, last, asked.count);
  if (error != std::errc() || end != last || asked.count < 1 || asked.count > most_requests)
    fail<InputError>(
        "request {}: after x comes how many there are, a whole number from 1 to {}; write it as "
        "PROMPT[+CACHED][:NEW][xCOUNT]",
        text, most_requests);
  return asked;
}

}  // namespace

std::vector<AskedRequests> parse_requests(const std::vector<std::string>& texts) {
  std::vector<AskedRequests> asked;
  int64_t count = 0;
  for (const std::string& text : texts) {
    count += asked.emplace_back(parse_one(text)).count;
    if (count > most_requests)
      fail<InputError>("more than {} requests are asked about; ask about fewer", most_requests);
  }
  return asked;
}

std::vector<schedule::SimulatedRequest> simulated(const std::vector<AskedRequests>& asked) {
  std::vector<AskedRequests> sorted = asked;
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const AskedRequests& each) {
    return each.shape.prompt_tokens + each.shape.cached_tokens;
  });
  std::vector<schedule::SimulatedRequest> requests;
  for (const auto& [text, shape, count] : sorted) {
    schedule::SimulatedRequest request;
    if (shape.cached_tokens > 0) request.turns.push_back({shape.cached_tokens, 0});
    request.turns.push_back({shape.prompt_tokens, shape.new_tokens});
    requests.insert(requests.end(), count, request);
  }
  return requests;
}

}  // namespace pecia::app
