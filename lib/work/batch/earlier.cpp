// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/earlier.hpp"

#include <algorithm>
#include <iterator>

#include "lib/base/core/error.hpp"
#include "lib/work/batch/identity.hpp"

namespace pecia::batch {
namespace {

struct Left {
  std::vector<std::string> input_sha256;
  std::vector<EarlierTurn> turns;
};

Left read_left(const io::ResultsFile& results, bool retry_failed) {
  const io::ResultsLayout& layout = results.layout();
  std::vector<uint8_t> cut_left(1);  // files written before 0.2 have no settings
  for (size_t i = 0; i < layout.settings.size(); ++i) {
    cut_left.resize(i + 1);
    cut_left[i] = cuts_left(layout.settings[i]) ? 1 : 0;
  }
  Left left{input_hashes(layout.identity), {}};
  const std::vector<io::TurnState> states = results.states();
  for (int64_t row = 0; row < results.num_turns(); ++row) {
    const io::ResultTurn& of = layout.turns[row];
    EarlierTurn turn{states[row], cut_left[of.settings], static_cast<int32_t>(of.prompt_tokens)};
    if (turn.failed() && retry_failed) turn.state = io::TurnState::open;
    if (turn.done()) turn.output_tokens = static_cast<int32_t>(results.output_tokens(row));
    left.turns.push_back(turn);
  }
  return left;
}

Left left_by_earlier_starts(const std::filesystem::path& results, bool retry_failed) {
  std::error_code unreachable;
  if (!std::filesystem::exists(results, unreachable)) return {};
  try {
    return read_left(io::ResultsFile(results, io::Access::read), retry_failed);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Earlier read_earlier(const job::Job& job, bool fresh, bool retry_failed) {
  const std::vector<std::string> hashes = sha256_of_files(job.input);
  Left left;
  if (!fresh) left = left_by_earlier_starts(job.output / "results.h5", retry_failed);
  Earlier earlier;
  for (const std::string& hash : left.input_sha256) {
    const auto found = std::find(hashes.begin(), hashes.end(), hash);
    if (found != hashes.end())
      earlier.order.push_back(static_cast<int32_t>(found - hashes.begin()));
  }
  if (!earlier.order.empty() && earlier.order.size() == left.input_sha256.size())
    earlier.turns = std::move(left.turns);
  for (int32_t at = 0; at < std::ssize(hashes); ++at)
    if (std::find(earlier.order.begin(), earlier.order.end(), at) == earlier.order.end())
      earlier.order.push_back(at);
  for (const int32_t at : earlier.order) earlier.input_sha256.push_back(hashes[at]);
  return earlier;
}

void reorder_inputs(job::Job& job, const std::vector<int32_t>& order) {
  std::vector<std::filesystem::path> inputs;
  for (const int32_t at : order) inputs.push_back(job.input.at(at));
  job.input = std::move(inputs);
}

}  // namespace pecia::batch
