// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/token_lists.hpp"

#include <utility>

namespace pecia::attention {

using parallel::PartTokens;

/// The arguments of one op.
struct TokenLists::Order {
  std::vector<kernels::OrderItem> items;
  std::vector<int64_t> counts;
  std::vector<kernels::PlaceRun> runs;
};

namespace {

/// What levels [first, last] keep, ascending.
template <typename Kept>
std::vector<int64_t> kept_counts(int first, int last, const Kept& kept) {
  std::vector<int64_t> counts;
  for (int level = last; level >= first; --level) counts.push_back(kept(level));
  return counts;
}

}  // namespace

TokenLists::TokenLists(const Compute& compute, int64_t kv_heads, bool queries_by_head)
    : compute_(compute),
      kv_heads_(kv_heads),
      queries_by_head_(queries_by_head),
      places_(compute.buffer()) {}

void TokenLists::begin_pass(const std::vector<SequenceParts>& sequences,
                            const parallel::PartsHere& here) {
  sequences_ = &sequences;
  here_ = here;
  entries_ = 0;
  for (const Kind kind : {cached_keys, new_keys, queries}) {
    lists_[kind].clear();
    for (const SequenceParts& sequence : sequences)
      for (int part = here.first; part < here.end(); ++part) {
        const PartTokens& of = sequence.parts[part];
        lists_[kind].push_back({entries_, kind == cached_keys ? of.cached : of.rows});
        entries_ += heads(kind) * lists_[kind].back().tokens;
      }
  }
  places_.reserve(entries_ * size_of(DType::int32));
}

const TokenLists::Lists& TokenLists::lists(Kind kind, int sequence, int part) const {
  return lists_[kind][static_cast<size_t>(sequence) * static_cast<size_t>(here_.count) +
                      static_cast<size_t>(part - here_.first)];
}

TensorView TokenLists::of(Kind kind, const LevelLayout::Pick& pick) const {
  const Lists& lists = this->lists(kind, pick.sequence, pick.part);
  const int64_t head = heads(kind) == 1 ? 0 : pick.head;
  return {static_cast<void*>(places_.as<int32_t>() + lists.first + head * lists.tokens +
                             pick.tokens.begin),
          DType::int32,
          {pick.tokens.size()}};
}

/// Adds the lists of a part. `counts` has what levels keep for each head, or for all alike.
void TokenLists::add(Order& order, Kind kind, int sequence, int part, const TokenNumbers& numbers,
                     const std::vector<std::vector<int64_t>>& counts) const {
  const Lists& lists = this->lists(kind, sequence, part);
  if (lists.tokens == 0) return;
  const SequenceParts& of = (*sequences_)[sequence];
  const PartTokens& tokens = of.parts[part];
  const PartPlaces& places = of.here[part];
  kernels::OrderItem item{};
  item.count = lists.tokens;
  item.first = kind == cached_keys ? tokens.first_cached : tokens.first;
  item.last = kind == cached_keys ? 0 : tokens.last;
  item.first_run = std::ssize(order.runs);
  if (kind == queries)
    order.runs.push_back({places.first_row, tokens.rows});
  else
    for (const auto& [begin, end] : kind == cached_keys ? places.cached_slots : places.row_slots)
      order.runs.push_back({begin, end - begin});
  item.num_runs = std::ssize(order.runs) - item.first_run;
  for (int64_t head = 0; head < heads(kind); ++head) {
    if (head < std::ssize(counts)) {
      const std::vector<int64_t>& of_head = counts[static_cast<size_t>(head)];
      item.first_count = std::ssize(order.counts), item.num_counts = std::ssize(of_head);
      order.counts.insert(order.counts.end(), of_head.begin(), of_head.end());
    }
    if (numbers.numbers) {
      const TokenNumbers::Part& first =
          numbers
              .parts[static_cast<size_t>(sequence) * of.parts.size() + static_cast<size_t>(part)];
      item.first_number =
          (kind == cached_keys ? first.cached : first.rows) + head * first.head_stride;
    }
    item.to = lists.first + head * lists.tokens;
    order.items.push_back(item);
  }
}

void TokenLists::run(const Order& order, const TokenNumbers& numbers) const {
  const report::ScopedSpan span(compute_.recorder, "kept_order", report::Kind::compute);
  compute_.backend.kept_order(
      {numbers.numbers, order.items, order.counts, order.runs,
       TensorView(static_cast<void*>(places_.data()), DType::int32, {entries_})},
      compute_.stream);
}

void TokenLists::order_keys(const TokenNumbers& numbers, const parallel::LevelRule& rule, int first,
                            int last) {
  Order order;
  for (int sequence = 0; sequence < std::ssize(*sequences_); ++sequence)
    for (int part = here_.first; part < here_.end(); ++part) {
      const PartTokens& of = (*sequences_)[sequence].parts[part];
      std::vector<std::vector<int64_t>> cached, rows;
      for (int64_t head = 0; head < (rule.key_drops.empty() ? 1 : kv_heads_); ++head) {
        cached.push_back(kept_counts(
            first, last, [&](int level) { return kept_cached(rule, level, of, head); }));
        rows.push_back(kept_counts(
            first, last, [&](int level) { return kept_row_keys(rule, level, of, head); }));
      }
      add(order, cached_keys, sequence, part, numbers, cached);
      add(order, new_keys, sequence, part, numbers, rows);
    }
  run(order, numbers);
}

void TokenLists::order_queries(const TokenNumbers& numbers, const parallel::LevelRule& rule,
                               int first, int last) {
  Order order;
  for (int sequence = 0; sequence < std::ssize(*sequences_); ++sequence)
    for (int part = here_.first; part < here_.end(); ++part)
      add(order, queries, sequence, part, numbers, {kept_counts(first, last, [&](int level) {
            return kept_rows(rule, level, (*sequences_)[sequence].parts[part]);
          })});
  run(order, numbers);
}

}  // namespace pecia::attention
