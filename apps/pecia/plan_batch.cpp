// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/report/format.hpp"

namespace pecia::app {
namespace {

constexpr int64_t most_requests = 1'000'000;

AskedRequests parse_one(const std::string& text) {
  const size_t times = text.find('x');
  AskedRequests asked{text, foresight::parse_shape(std::string_view(text).substr(0, times), text)};
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

std::string plural(int64_t number, const char* what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
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

nlohmann::ordered_json batch_json(const foresight::Batch& batch) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  int64_t fewest_prompt = none, most_prompt = 0, fewest_new = none, most_new = 0;
  for (const schedule::SimulatedRequest& request : batch.requests()) {
    int64_t prompt = 0, answers = 0;
    for (const schedule::SimulatedTurn& turn : request.turns)
      prompt += turn.prompt_tokens, answers += turn.answer_tokens;
    fewest_prompt = std::min(fewest_prompt, prompt), most_prompt = std::max(most_prompt, prompt);
    fewest_new = std::min(fewest_new, answers), most_new = std::max(most_new, answers);
  }
  return {{"requests", batch.work().requests},
          {"prompt_tokens", batch.work().prompt_tokens},
          {"new_tokens", batch.work().answer_tokens},
          {"longest_prompt", batch.longest_prompt()},
          {"prompt_tokens_of_a_request", {fewest_prompt, most_prompt}},
          {"new_tokens_of_a_request", {fewest_new, most_new}}};
}

std::string batch_text(const nlohmann::ordered_json& batch) {
  const auto requests = batch["requests"].get<int64_t>();
  const auto in_all = [&](const char* key) {
    return requests == 1
               ? ""
               : fmt::format(" each, {} in all", report::format_count(batch[key].get<double>()));
  };
  const auto prompt = batch["prompt_tokens_of_a_request"].get<std::pair<int64_t, int64_t>>();
  const auto answers = batch["new_tokens_of_a_request"].get<std::pair<int64_t, int64_t>>();
  std::string text =
      fmt::format("  batch: {}; prompts: {}{}{}; answers: up to {}{}", plural(requests, "request"),
                  prompt.first == prompt.second ? "" : fmt::format("{} to ", prompt.first),
                  plural(prompt.second, "token"), in_all("prompt_tokens"),
                  plural(answers.second, "token"), in_all("new_tokens"));
  // With answers between them, or without the turns of a fork that do not see each other.
  if (const auto longest = batch["longest_prompt"].get<int64_t>(); longest != prompt.second)
    text += fmt::format("; the longest turn sees {} tokens", longest);
  return text + "\n";
}

}  // namespace pecia::app
