// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/answer_lengths.hpp"

#include <algorithm>

namespace pecia::schedule {

double AnswerLengths::expected(const batch::Turn& turn, int64_t given) const {
  constexpr int64_t telling_answers = 4;
  constexpr double margin = 1.25;
  const auto most = static_cast<double>(turn.max_new_tokens - given);
  if (most <= 0) return 0;
  if (answers_ < telling_answers) return most;
  const double share = margin * static_cast<double>(tokens_) / static_cast<double>(allowed_);
  return std::clamp(share * turn.max_new_tokens - static_cast<double>(given), 1.0, most);
}

}  // namespace pecia::schedule
