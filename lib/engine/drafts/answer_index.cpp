// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/drafts/answer_index.hpp"

#include <algorithm>
#include <utility>

namespace pecia::drafts {

void AnswerIndex::add(std::span<const int32_t> answer) {
  const std::span<const int32_t> kept =
      answer.first(std::min<size_t>(answer.size(), std::max<int64_t>(0, half_ - 1)));
  if (kept.empty()) return;
  if (later_.size() + std::ssize(kept) + 1 > half_) older_ = std::exchange(later_, {});
  later_.add(kept);
  later_.add(SuffixIndex::end_of_text);
}

Draft AnswerIndex::continuation(std::span<const int32_t> end, int64_t most) const {
  Draft later = later_.continuation(end, most), older = older_.continuation(end, most);
  return older.match > later.match ? std::move(older) : std::move(later);
}

}  // namespace pecia::drafts
