// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_exchange.hpp"

#include <utility>

namespace pecia::attention {

using Pick = LevelLayout::Pick;

namespace {

/// Takes the next `bytes` of a buffer.
std::byte* take(const device::Buffer& buffer, int64_t& end, int64_t bytes) {
  return buffer.as<std::byte>() + std::exchange(end, end + bytes);
}

/// The bytes of results with their log-sums, which follow them.
std::span<std::byte> message_bytes(const Partial& results) {
  return {bytes_of(results.out).data(),
          bytes_of(results.out).size() + bytes_of(results.lse).size()};
}

}  // namespace

LevelExchange::LevelExchange(const Compute& compute, const KvCache& cache, AttentionSteps& steps)
    : compute_(compute),
      cache_(cache),
      steps_(steps),
      arenas_(compute, steps),
      keys_(compute, cache.shape()),
      leaving_(compute.buffer()),
      coming_(compute.buffer()),
      results_leaving_(compute.buffer()),
      results_coming_(compute.buffer()) {
  shape_ = {cache.shape(), arenas_.width(), steps.wire()};
}

void LevelExchange::pick_keys(RowPicks& picks, int64_t layer, TokenLists::Kind kind,
                              const std::vector<Pick>& from, const TokenLists& lists,
                              const KeyRows& to) const {
  for (const Pick& pick : from)
    picks.add(slots_of_head(cache_, layer, pick.head), lists.of(kind, pick),
              to.slice(pick.to, pick.tokens.size()));
}

void LevelExchange::pick_queries(RowPicks& picks, const TensorView& q,
                                 const std::vector<Pick>& from, const TokenLists& lists,
                                 const TensorView& to) const {
  const int64_t width = arenas_.width();
  const TensorView rows = q.reshape({q.rows(), q.row_elements()});
  for (const Pick& pick : from)
    picks.add(rows.slice_columns(pick.head * width, width), lists.of(TokenLists::queries, pick),
              to.slice_rows(pick.to, pick.tokens.size()));
}

Partial LevelExchange::results_at(std::byte* begin, int64_t rows) const {
  const TensorView out(static_cast<void*>(begin), shape_.wire, {rows, shape_.width});
  std::byte* const sums = begin + rows * shape_.width * size_of(shape_.wire);
  return {out, TensorView(static_cast<void*>(sums), DType::fp32, {rows, arenas_.group()})};
}

int64_t LevelExchange::results_room(int64_t rows) const {
  return aligned(rows *
                 (shape_.width * size_of(shape_.wire) + arenas_.group() * size_of(DType::fp32)));
}

void LevelExchange::reserve_messages() {
  int64_t leaving = 0, coming = 0, results_leaving = 0, results_coming = 0;
  for (const LevelLayout::Step& step : layout_->steps) {
    for (const auto& out : step.tokens_out)
      leaving += shape_.room(out.num_keys, 0) + shape_.room(0, out.num_queries);
    for (const auto& in : step.tokens_in)
      coming += shape_.room(in.num_keys, 0) + shape_.room(0, in.num_queries);
    for (const auto& out : step.results_out) results_leaving += results_room(out.count);
    for (const auto& in : step.results_in) results_coming += results_room(in.count);
  }
  leaving_.reserve(leaving), coming_.reserve(coming);
  results_leaving_.reserve(results_leaving), results_coming_.reserve(results_coming);
  leaving_end_ = coming_end_ = results_leaving_end_ = results_coming_end_ = 0;
}

void LevelExchange::begin(const LevelLayout& layout, int64_t layer, const TokenLists& lists) {
  layout_ = &layout, lists_ = &lists, layer_ = layer;
  keys_.reserve(layout.keys_here);
  arenas_.reserve_queries(layout.queries_here);
  arenas_.reserve_results((layout.levels - 1) * layout.queries_here);
  reserve_messages();
  tokens_.clear(), queries_.clear(), results_.clear();
}

void LevelExchange::start_keys(size_t index) {
  const LevelLayout::Step& step = layout_->steps[index];
  UnderWay& tokens = tokens_.emplace_back();
  comm::Exchange exchange;
  RowPicks picks;
  for (const auto& out : step.tokens_out) {
    if (out.num_keys == 0) continue;
    const TokenMessage message =
        shape_.at(take(leaving_, leaving_end_, shape_.room(out.num_keys, 0)), out.num_keys, 0);
    pick_keys(picks, layer_, TokenLists::cached_keys, out.cached, *lists_, message.keys);
    pick_keys(picks, layer_, TokenLists::new_keys, out.rows, *lists_, message.keys);
    exchange.sends.push_back({message.bytes, out.rank});
    tokens.sent += std::ssize(message.bytes);
  }
  const KeyRows keys = keys_.rows(0, layout_->keys_here);
  pick_keys(picks, layer_, TokenLists::cached_keys, step.cached_here, *lists_, keys);
  pick_keys(picks, layer_, TokenLists::new_keys, step.rows_here, *lists_, keys);
  picks.run(compute_);
  for (const auto& in : step.tokens_in) {
    std::byte* const begin = take(coming_, coming_end_, shape_.room(in.num_keys, 0));
    tokens.coming.push_back(begin);
    if (in.num_keys > 0)
      exchange.receives.push_back({shape_.at(begin, in.num_keys, 0).bytes, in.rank});
  }
  comm::Communicator& ring = steps_.ring();
  tokens.transfer = ring.start_exchange(exchange, {"level_tokens", ring.next_operation()});
}

void LevelExchange::start_queries(size_t index, const TensorView& q) {
  const LevelLayout::Step& step = layout_->steps[index];
  UnderWay& queries = queries_.emplace_back();
  comm::Exchange exchange;
  RowPicks picks;
  for (const auto& out : step.tokens_out) {
    if (out.num_queries == 0) continue;
    const TokenMessage message = shape_.at(
        take(leaving_, leaving_end_, shape_.room(0, out.num_queries)), 0, out.num_queries);
    pick_queries(picks, q, out.queries, *lists_, message.queries);
    exchange.sends.push_back({message.bytes, out.rank});
    queries.sent += std::ssize(message.bytes);
  }
  pick_queries(picks, q, step.queries_here, *lists_, arenas_.queries(0, layout_->queries_here));
  picks.run(compute_);
  for (const auto& in : step.tokens_in) {
    std::byte* const begin = take(coming_, coming_end_, shape_.room(0, in.num_queries));
    queries.coming.push_back(begin);
    if (in.num_queries > 0)
      exchange.receives.push_back({shape_.at(begin, 0, in.num_queries).bytes, in.rank});
  }
  comm::Communicator& ring = steps_.ring();
  queries.transfer = ring.start_exchange(exchange, {"level_queries", ring.next_operation()});
}

void LevelExchange::attend(size_t index) {
  const LevelLayout::Step& step = layout_->steps[index];
  steps_.wait(*tokens_[index].transfer, "level_tokens", tokens_[index].sent);
  steps_.wait(*queries_[index].transfer, "level_queries", queries_[index].sent);
  RowPicks coming;
  for (size_t i = 0; i < step.tokens_in.size(); ++i) {
    const LevelLayout::TokensIn& in = step.tokens_in[i];
    const KeyRows keys = shape_.at(tokens_[index].coming[i], in.num_keys, 0).keys;
    const TensorView queries = shape_.at(queries_[index].coming[i], 0, in.num_queries).queries;
    int64_t key = 0, query = 0;
    for (const auto& [begin, count] : in.keys)
      coming.add(keys.slice(std::exchange(key, key + count), count), {}, keys_.rows(begin, count));
    for (const auto& [begin, count] : in.queries)
      coming.add(queries.slice_rows(std::exchange(query, query + count), count), {},
                 arenas_.queries(begin, count));
  }
  coming.run(compute_);
  if (!step.items.empty())
    arenas_.attend(layout_->queries_here, layout_->positions, step.items, step.runs,
                   4 * step.pairs * static_cast<double>(arenas_.width()), keys_,
                   arenas_.results(layout_->output_at(step.level, 0), layout_->queries_here));

  UnderWay& results = results_.emplace_back();
  comm::Exchange exchange;
  RowPicks leaving;
  for (const LevelLayout::ResultsOut& out : step.results_out) {
    const int64_t room = results_room(out.count);
    const Partial message =
        results_at(take(results_leaving_, results_leaving_end_, room), out.count);
    int64_t row = 0;
    for (const auto& [begin, count] : out.outputs) {
      const Partial from = arenas_.results(begin, count);
      leaving.add(from.out, {}, message.out.slice_rows(row, count));
      leaving.add(from.lse, {}, message.lse.slice_rows(row, count));
      row += count;
    }
    exchange.sends.push_back({message_bytes(message), out.rank});
    results.sent += std::ssize(exchange.sends.back().bytes);
  }
  leaving.run(compute_);
  for (const LevelLayout::ResultsIn& in : step.results_in) {
    std::byte* const begin = take(results_coming_, results_coming_end_, results_room(in.count));
    results.coming.push_back(begin);
    exchange.receives.push_back({message_bytes(results_at(begin, in.count)), in.rank});
  }
  comm::Communicator& ring = steps_.ring();
  results.transfer = ring.start_exchange(exchange, {"level_outputs", ring.next_operation()});
}

void LevelExchange::merge(size_t index, const Partial& into) {
  const LevelLayout::Step& step = layout_->steps[index];
  arenas_.merge(step.from_here, *lists_, into);
  steps_.wait(*results_[index].transfer, "level_outputs", results_[index].sent);
  std::vector<kernels::PickedParts> parts;
  for (size_t i = 0; i < step.results_in.size(); ++i) {
    const LevelLayout::ResultsIn& in = step.results_in[i];
    const Partial message = results_at(results_[index].coming[i], in.count);
    for (const Pick& rows : in.rows) {
      const int64_t count = rows.tokens.size();
      parts.push_back(arenas_.part(
          rows, *lists_,
          {message.out.slice_rows(rows.to, count), message.lse.slice_rows(rows.to, count)}));
    }
  }
  arenas_.merge(parts, into);
}

}  // namespace pecia::attention
