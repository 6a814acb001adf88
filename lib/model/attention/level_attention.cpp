// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::PartTokens;
using parallel::RowRange;
using report::Kind;
using report::ScopedSpan;
using Pick = LevelLayout::Pick;
using Result = LevelLayout::Result;

namespace {

/// Calls `copy` for each run of `order`'s tokens that lie next to each other: where the run begins
/// among them, where its first token lies, and its length. `at` says where a token lies.
template <typename Copy>
void for_each_run(const std::vector<int64_t>& order, RowRange tokens,
                  const std::vector<int64_t>& at, const Copy& copy) {
  for (int64_t begin = tokens.begin; begin < tokens.end;) {
    int64_t end = begin + 1;
    while (end < tokens.end && at[order[end]] == at[order[end - 1]] + 1) ++end;
    copy(begin - tokens.begin, at[order[begin]], end - begin);
    begin = end;
  }
}

std::vector<comm::LinkLevel> links_of(const std::vector<comm::RackServerGpu>& places, int rank) {
  std::vector<comm::LinkLevel> links;
  for (const comm::RackServerGpu& place : places)
    links.push_back(comm::link_level(places.at(rank), place));
  return links;
}

}  // namespace

LevelAttention::LevelAttention(const Compute& compute, KvCache& cache, AttentionSteps& steps,
                               const LevelRanks& ranks, int rank,
                               const parallel::SparseSetting& setting)
    : steps_(steps),
      compute_(compute),
      cache_(cache),
      levels_(parallel::levels_of(comm::server_of_rank(ranks.places),
                                  comm::rack_of_rank(ranks.places), setting.levels)),
      setting_(setting),
      rank_(rank),
      shape_{steps.num_heads(), cache.shape(), links_of(ranks.places, rank), steps.wire()},
      importance_(compute, cache, steps),
      need_(compute),
      totals_(SparseTotals::of(levels_, cache.shape().layers)),
      keys_out_(compute),
      keys_here_(compute),
      sink_keys_(compute),
      queries_out_(compute.buffer()),
      queries_here_(compute.buffer()),
      outputs_here_(compute.buffer()),
      output_sums_(compute.buffer()),
      home_(compute.buffer()),
      home_sums_(compute.buffer()),
      travelling_q_(compute.buffer()),
      queries_in_(compute.buffer()),
      outputs_out_(compute.buffer()) {
  if (levels_.count() == 1) setting_.rule.drop = 0;  // there is nothing to drop from
  if (ranks.heads != nullptr)
    other_heads_.emplace(compute, *ranks.heads, ranks.kv_holders, shape_.links);
}

void LevelAttention::keep_ends(PartTokens& part) const {
  if (!keeps_borders()) return;
  part.first = std::min(part.rows, border);
  part.last = std::max(part.last, part.first);
}

void LevelAttention::begin(const PassRows& rows, std::vector<Sequence> sequences,
                           AttentionCall own) {
  comm::Communicator& ring = steps_.ring();
  PECIA_CHECK(ring.size() == (head_parallel() ? 1 : num_parts()),
              "levels of {} ranks for a ring of {}", num_parts(), ring.size());
  ring_ = &ring;
  here_ =
      head_parallel() ? parallel::PartsHere{0, num_parts()} : parallel::PartsHere{ring.rank(), 1};
  sequences_ = std::move(sequences);
  own_ = std::move(own);
  const SequenceRuns cached = PassCalls(steps_, rows).in_cache(Retention::all);
  std::vector<TokenImportance::Sequence> tokens;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    auto& runs = tokens.emplace_back(std::move(sequences_[i].tokens)).runs;
    for (const parallel::SequenceId member : rows.lineage(rows.sequences()[i].sequence)) {
      const auto& of_member = cached[rows.key_index(member)];
      runs.insert(runs.end(), of_member.begin(), of_member.end());
    }
  }
  importance_.begin_pass(ring, std::move(tokens));
  std::vector<parallel::LevelSequence> parts;
  for (const Sequence& sequence : sequences_) parts.push_back(sequence.parts);
  need_.begin_pass(rows.count());
  const parallel::LevelRule all{setting_.rule.geometry, 0};
  dense_ = make_plan(all, parts);
  if (setting_.rule.drop > 0) {
    weighing_ = dense_;
    sparse_ = make_plan(setting_.rule, parts);
    plan_sinks(weighing_), plan_sinks(sparse_);
  }
  if (levels_.count() == 1) plan_sinks(dense_);
  totals_.add_pass(parts);
  for (Orders* orders : {&cached_order_, &row_order_})
    orders->assign(sequences_.size() * num_parts(), std::vector<std::vector<int64_t>>(kv_heads()));
  query_order_.assign(sequences_.size() * num_parts(), std::vector<std::vector<int64_t>>(1));
}

bool LevelAttention::drops(int64_t layer) const {
  return setting_.rule.drop > 0 && layer > 0 && layer + 1 < cache_.shape().layers &&
         importance_.known() && (!keeps_borders() || need_.known());
}

LevelAttention::Plan LevelAttention::make_plan(
    const parallel::LevelRule& rule, const std::vector<parallel::LevelSequence>& parts) const {
  const auto micro = [&](int) { return setting_.micro.value_or(1); };
  const auto steps = head_parallel()
                         ? head_parallel_steps(levels_, rule, parts, kv_heads())
                         : level_steps(levels_, rule, parts, kv_heads(), micro, ring_->rank());
  Plan plan{rule, lay_out(levels_, rule, parts, steps, here_, steps_.head_dim()), {}, {}, {}, 0};
  plan.count = count_layer(levels_, rule, parts, plan.layout, here_, shape_);
  if (rule.geometry == parallel::Geometry::nested) plan_inner(plan);
  return plan;
}

/// Attention of rows to sinks of another part. Results count where no level shows them these: the
/// lowest level that has both parts drops the rows.
void LevelAttention::plan_sinks(Plan& plan) const {
  Plan::Inner& sinks = plan.sinks;
  LevelCount& count = plan.count.levels[0];
  double pairs = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const auto index = static_cast<int>(i);
    const Sequence& sequence = sequences_[i];
    const int64_t first_key = sinks.keys;
    sinks.keys += sequence.sinks * kv_heads();
    if (here_.has(sequence.sink_part)) {
      const int64_t bytes = sequence.sinks * cache_.shape().layer_bytes_per_token();
      count.token_bytes += bytes * (ring_->size() - 1);
      for (int other = 0; other < ring_->size(); ++other)
        if (other != ring_->rank())
          plan.count.by_link[static_cast<size_t>(shape_.links[other])] +=
              static_cast<double>(bytes);
    }
    for (int part = here_.first; part < here_.end(); ++part) {
      const int64_t rows = sequence.parts[part].rows;
      if (part == sequence.sink_part || rows == 0 || sequence.sinks == 0) continue;
      int level = 2;
      while (level <= levels_.count() && !levels_.together(level, part, sequence.sink_part))
        ++level;
      const int64_t kept =
          level <= levels_.count() ? kept_rows(plan.rule, level, sequence.parts[part]) : 0;
      for (int64_t head = 0; head < kv_heads(); ++head) {
        sinks.call.items.push_back({sinks.queries, rows, std::ssize(sinks.call.runs), 1});
        sinks.call.runs.push_back(
            {(first_key + head * sequence.sinks) * steps_.head_dim(), 0, sequence.sinks, 0});
        sinks.asking.push_back({index, part, head, {0, rows}, sinks.queries});
        if (kept < rows)
          sinks.merged.push_back({index, part, head, {kept, rows}, sinks.queries + kept});
        sinks.queries += rows;
        pairs += static_cast<double>(rows * sequence.sinks);
        plan.need_pairs += static_cast<double>(group() * kept * sequence.sinks);
      }
    }
  }
  sinks.call.positions.assign(sinks.queries, most_sinks());
  sinks.call.flops[0] = 4 * pairs * static_cast<double>(group() * steps_.head_dim());
  count.pairs += static_cast<double>(group()) * pairs - plan.need_pairs;
}

/// Attention of a part's kept tokens to each other. They count as standing next to each other, since
/// only their order matters.
void LevelAttention::plan_inner(Plan& plan) const {
  for (int level = 2; level <= levels_.count(); ++level) {
    Plan::Inner& inner = plan.inner.emplace_back();
    double pairs = 0;
    for (size_t i = 0; i < sequences_.size(); ++i)
      for (int part = here_.first; part < here_.end(); ++part) {
        const auto sequence = static_cast<int>(i);
        const PartTokens& tokens = sequences_[i].parts[part];
        const int64_t cached = kept_cached(plan.rule, level, tokens);
        const int64_t rows = kept_rows(plan.rule, level, tokens);
        for (int64_t head = 0; head < kv_heads() && rows > 0; ++head) {
          inner.call.items.push_back({inner.queries, rows, std::ssize(inner.call.runs), 1});
          inner.call.runs.push_back({inner.keys * steps_.head_dim(), 0, cached + rows, 0});
          for (int64_t row = 0; row < rows; ++row) inner.call.positions.push_back(cached + row);
          inner.cached.push_back({sequence, part, head, {0, cached}, inner.keys});
          inner.rows.push_back({sequence, part, head, {0, rows}, inner.keys + cached});
          inner.asking.push_back({sequence, part, head, {0, rows}, inner.queries});
          inner.merged.push_back(inner.asking.back());
          inner.keys += cached + rows;
          inner.queries += rows;
          pairs += static_cast<double>(rows) * (static_cast<double>(cached) + 0.5 * (rows + 1));
        }
      }
    inner.call.flops[0] = 4 * pairs * static_cast<double>(group() * steps_.head_dim());
    plan.count.levels[level - 1].pairs += static_cast<double>(group()) * pairs;
  }
}

/// Puts the tokens that higher levels keep first.
void LevelAttention::order_tokens(int64_t layer) {
  const ScopedSpan span(compute_.recorder, "order_tokens", Kind::compute);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    // The tokens here are in this order: cached ones of all parts, then rows of all parts.
    int64_t cached = 0, row = 0;
    for (int part = here_.first; part < here_.end(); ++part)
      row += sequences_[i].parts[part].cached;
    for (int part = here_.first; part < here_.end(); ++part) {
      order_part(layer, static_cast<int>(i), part, cached, row);
      cached += sequences_[i].parts[part].cached, row += sequences_[i].parts[part].rows;
    }
  }
}

/// The same numbers in every run and on all ranks, which differ by layer.
std::vector<float> LevelAttention::any_importance(int64_t layer, int part, int64_t tokens) {
  const uint64_t key =
      mix(mix(mix(0, "selection"), static_cast<uint64_t>(layer)), static_cast<uint64_t>(part));
  std::vector<float> numbers;
  for (int64_t token = 0; token < tokens; ++token)
    numbers.push_back(static_cast<float>(uniform(key, static_cast<uint64_t>(token))));
  return numbers;
}

/// `cached` and `row`: the first ones of the part among the sequence's tokens here.
void LevelAttention::order_part(int64_t layer, int sequence, int part, int64_t cached,
                                int64_t row) {
  const bool drops = plan_ == &sparse_;
  const PartTokens& tokens = sequences_[sequence].parts[part];
  std::vector<int64_t> kept_of_cached, kept_of_rows;
  for (int level = 2; level <= levels_.count(); ++level) {
    kept_of_cached.push_back(kept_cached(plan_->rule, level, tokens));
    kept_of_rows.push_back(kept_rows(plan_->rule, level, tokens));
  }
  const auto all = [](std::vector<int64_t>& order, int64_t count) {  // in their own order
    order.resize(count);
    std::iota(order.begin(), order.end(), int64_t{0});
  };
  const size_t at = place(sequence, part);
  const bool random = setting_.selection == parallel::Selection::random;
  const std::vector<float> any =
      any_importance(layer, part, random && drops ? tokens.cached + tokens.rows : 0);
  const std::span<const float> any_cached = std::span(any).first(any.empty() ? 0 : tokens.cached),
                               any_rows = std::span(any).subspan(any_cached.size());
  for (int64_t head = 0; head < kv_heads(); ++head) {
    std::vector<int64_t>&cached_order = cached_order_[at][head], &row_order = row_order_[at][head];
    if (!drops) {
      all(cached_order, tokens.cached), all(row_order, tokens.rows);
      continue;
    }
    std::span<const float> of_cached = any_cached, of_rows = any_rows;
    if (!random) {
      of_cached = importance_.of(sequence, head).subspan(cached, tokens.cached);
      of_rows = importance_.of(sequence, head).subspan(row, tokens.rows);
    }
    cached_order = parallel::kept_order(of_cached, tokens.first_cached, 0, kept_of_cached);
    row_order = parallel::kept_order(of_rows, tokens.first, tokens.last, kept_of_rows);
  }
  if (drops && keeps_borders())
    query_order_[at].front() = parallel::kept_order(
        random ? any_rows
               : need_.of_rows().subspan(sequences_[sequence].here[part].first_row, tokens.rows),
        tokens.first, tokens.last, kept_of_rows);
  else
    all(query_order_[at].front(), tokens.rows);
}

void LevelAttention::reserve(Arena& arena, int64_t keys) const {
  const KvShape& shape = cache_.shape();
  for (device::Buffer* buffer : {&arena.k, &arena.v})
    buffer->reserve(keys * shape.head_dim * size_of(shape.dtype));
  if (shape.dtype != DType::fp8) return;
  for (device::Buffer* buffer : {&arena.k_scales, &arena.v_scales})
    buffer->reserve(keys * size_of(DType::fp32));
}

/// Copies keys and values out of the cache.
void LevelAttention::pick_keys(int64_t layer, const std::vector<Pick>& picks, const Orders& orders,
                               bool cached, const Arena& to) const {
  const auto pick = [&](const TensorView& from, const device::Buffer& into) {
    if (!from) return;
    const int64_t bytes = (from.rank() == 3 ? steps_.head_dim() : 1) * size_of(from.dtype());
    for (const Pick& one : picks) {
      const Tokens& tokens = tokens_of(one);
      for_each_run(
          order_of(orders, one), one.tokens, cached ? tokens.cached_slots : tokens.row_slots,
          [&](int64_t first, int64_t slot, int64_t count) {
            compute_.device.copy(into.as<std::byte>() + (one.to + first) * bytes,
                                 static_cast<const std::byte*>(from.row(one.head)) + slot * bytes,
                                 count * bytes, compute_.stream);
          });
    }
  };
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  pick(k.vectors, to.k), pick(v.vectors, to.v);
  pick(k.scales, to.k_scales), pick(v.scales, to.v_scales);
}

/// Copies the queries of KV heads' groups.
void LevelAttention::pick_queries(const TensorView& q, const std::vector<Pick>& picks,
                                  const Orders& orders, const device::Buffer& to) const {
  const int64_t width = group() * steps_.head_dim() * size_of(q.dtype());
  const int64_t pitch = kv_heads() * width;
  for (const Pick& one : picks) {
    const std::vector<int64_t>& order = order_of(orders, one);
    const int64_t first_row = tokens_of(one).first_row;
    for (int64_t begin = one.tokens.begin; begin < one.tokens.end;) {
      int64_t end = begin + 1;
      while (end < one.tokens.end && order[end] == order[end - 1] + 1) ++end;
      compute_.device.copy_rows(to.as<std::byte>() + (one.to + begin - one.tokens.begin) * width,
                                width,
                                static_cast<const std::byte*>(q.data()) +
                                    (first_row + order[begin]) * pitch + one.head * width,
                                pitch, width, end - begin, compute_.stream);
      begin = end;
    }
  }
}

std::span<std::byte> LevelAttention::entries(const device::Buffer& rows, DType type, int64_t width,
                                             int64_t begin, int64_t count) {
  const int64_t bytes = width * size_of(type);
  return {rows.as<std::byte>() + begin * bytes, static_cast<size_t>(count * bytes)};
}

void LevelAttention::add_keys(std::vector<std::span<std::byte>>& to, const Arena& arena,
                              int64_t begin, int64_t count) const {
  const KvShape& shape = cache_.shape();
  const int64_t bytes = shape.head_dim * size_of(shape.dtype);
  for (const device::Buffer* buffer : {&arena.k, &arena.v})
    to.emplace_back(buffer->as<std::byte>() + begin * bytes, static_cast<size_t>(count * bytes));
  if (shape.dtype != DType::fp8) return;
  for (const device::Buffer* buffer : {&arena.k_scales, &arena.v_scales})
    to.push_back(entries(*buffer, DType::fp32, 1, begin, count));
}

TensorView LevelAttention::heads_of(const device::Buffer& rows, DType type, int64_t begin,
                                    int64_t count) const {
  const int64_t width = group() * steps_.head_dim();
  return {
      static_cast<void*>(entries(rows, type, width, begin, count).data()), type, {count, width}};
}

void LevelAttention::cast(const std::vector<LevelLayout::Move>& moves, const device::Buffer& from,
                          DType from_type, const device::Buffer& to, DType to_type) const {
  if (from_type == to_type) return;
  for (const auto& [rank, begin, count] : moves)
    compute_.copy(heads_of(from, from_type, begin, count), heads_of(to, to_type, begin, count));
}

void LevelAttention::run(int64_t layer, const LayerRows& x, const Partial& to) {
  start(layer, x.q);
  steps_.attend(layer, own_, x.q, steps_.cached(layer), to);
  finish(layer, x.q, to);
}

/// Sends what leaves.
void LevelAttention::start(int64_t layer, const TensorView& q) {
  plan_ = &plan_of(layer);
  order_tokens(layer);
  const LevelLayout& layout = plan_->layout;
  const int64_t width = group() * steps_.head_dim();
  const DType wire = steps_.wire();
  reserve(keys_out_, layout.keys_out), reserve(keys_here_, layout.keys_here);
  queries_out_.reserve(layout.queries_out * width * size_of(wire));
  queries_here_.reserve(layout.queries_here * width * size_of(DType::fp32));
  if (wire != DType::fp32) queries_in_.reserve(layout.queries_here * width * size_of(wire));
  const TensorView leaving =
      layout.queries_out > 0 ? compute_.as_type(q, wire, travelling_q_) : TensorView();
  arriving_.clear();
  arriving_bytes_.clear();
  if (plan_->sinks.keys > 0) send_sinks(layer);
  for (const LevelLayout::Step& step : layout.steps) {
    {
      const ScopedSpan span(compute_.recorder, "pack", Kind::compute);
      pick_keys(layer, step.cached_out, cached_order_, true, keys_out_);
      pick_keys(layer, step.rows_out, row_order_, false, keys_out_);
      if (leaving) pick_queries(leaving, step.queries_out, query_order(), queries_out_);
      pick_keys(layer, step.cached_here, cached_order_, true, keys_here_);
      pick_keys(layer, step.rows_here, row_order_, false, keys_here_);
      pick_queries(q, step.queries_here, query_order(), queries_here_);
    }
    comm::Exchange exchange;
    int64_t sent = 0;
    std::vector<std::span<std::byte>> parts;
    const auto send = [&](int to) {
      for (const auto& part : parts)
        exchange.sends.push_back({part, to}), sent += static_cast<int64_t>(part.size());
      parts.clear();
    };
    const auto receive = [&](int from) {
      for (const auto& part : parts) exchange.receives.push_back({part, from});
      parts.clear();
    };
    for (const auto& [to, begin, count] : step.keys_leaving)
      add_keys(parts, keys_out_, begin, count), send(to);
    for (const auto& [from, begin, count] : step.keys_arriving)
      add_keys(parts, keys_here_, begin, count), receive(from);
    for (const auto& [to, begin, count] : step.queries_leaving)
      parts.push_back(entries(queries_out_, wire, width, begin, count)), send(to);
    const device::Buffer& arrivals = wire == DType::fp32 ? queries_here_ : queries_in_;
    for (const auto& [from, begin, count] : step.queries_arriving)
      parts.push_back(entries(arrivals, wire, width, begin, count)), receive(from);
    const comm::Operation operation{"level_tokens", ring_->next_operation()};
    arriving_.push_back(ring_->start_exchange(exchange, operation));
    arriving_bytes_.push_back(sent);
  }
}

/// Every rank gets the sinks' keys and values: of each sequence, by head.
void LevelAttention::send_sinks(int64_t layer) {
  reserve(sink_keys_, plan_->sinks.keys);
  comm::Exchange exchange;
  sink_bytes_ = 0;
  int64_t first = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    std::vector<std::span<std::byte>> parts;
    add_keys(parts, sink_keys_, first, sequence.sinks * kv_heads());
    if (here_.has(sequence.sink_part)) {
      const auto index = static_cast<int>(i);
      std::vector<int64_t> as_they_are(sequence.sinks);
      std::iota(as_they_are.begin(), as_they_are.end(), int64_t{0});
      Orders orders(sequences_.size() * num_parts());
      orders[place(index, sequence.sink_part)].assign(1, as_they_are);
      std::vector<Pick> picks;
      for (int64_t head = 0; head < kv_heads(); ++head)
        picks.push_back(
            {index, sequence.sink_part, head, {0, sequence.sinks}, first + head * sequence.sinks});
      const bool cached = sequence.parts[sequence.sink_part].first_cached > 0;
      pick_keys(layer, picks, orders, cached, sink_keys_);
      for (int to = 0; to < ring_->size(); ++to)
        for (const auto& part : parts)
          if (to != ring_->rank())
            exchange.sends.push_back({part, to}), sink_bytes_ += static_cast<int64_t>(part.size());
    } else {
      for (const auto& part : parts) exchange.receives.push_back({part, sequence.sink_part});
    }
    first += sequence.sinks * kv_heads();
  }
  const comm::Operation operation{"level_sinks", ring_->next_operation()};
  sinks_coming_ = ring_->start_exchange(exchange, operation);
}

Partial LevelAttention::results(const device::Buffer& out, DType type, const device::Buffer& lse,
                                int64_t begin, int64_t count) const {
  return {heads_of(out, type, begin, count).reshape({count, group(), steps_.head_dim()}),
          TensorView(static_cast<void*>(lse.as<float>() + begin * group()), DType::fp32,
                     {count, group()})};
}

/// Attention of one KV head for each item, in the arenas `here`.
void LevelAttention::attend(int64_t queries, std::span<const int64_t> positions,
                            std::span<const kernels::AttentionItem> items,
                            std::span<const kernels::KeyRun> runs, double pairs, const Arena& keys,
                            const Partial& to) {
  const ScopedSpan span(compute_.recorder, "attention", Kind::compute, 0,
                        4 * pairs * static_cast<double>(group() * steps_.head_dim()));
  compute_.backend.attention({.q = TensorView(static_cast<void*>(queries_here_.data()), DType::fp32,
                                              {queries, group(), steps_.head_dim()}),
                              .query_positions = positions,
                              .items = items,
                              .runs = runs,
                              .keys = keys.keys(),
                              .kv_dtype = cache_.shape().dtype,
                              .num_kv_heads = 1,
                              .scale = steps_.scale(),
                              .out = to.out,
                              .lse = to.lse},
                             compute_.stream);
}

/// Adds where rows of one KV head are among all groups of heads: row · KV heads + KV head.
void LevelAttention::add_groups(const Pick& rows, const Orders& orders) {
  const std::vector<int64_t>& order = order_of(orders, rows);
  const int64_t first_row = tokens_of(rows).first_row;
  for (int64_t i = rows.tokens.begin; i < rows.tokens.end; ++i)
    groups_.push_back((first_row + order[i]) * kv_heads() + rows.head);
}

/// Merges results of one KV head into all heads' results.
void LevelAttention::merge(const Result& result, const Orders& orders, const Partial& part,
                           const Partial& into) {
  groups_.clear();
  add_groups({result.sequence, result.part, result.head, result.rows, result.begin}, orders);
  const int64_t groups = into.out.rows() * kv_heads();
  steps_.merge(
      part,
      {into.out.reshape({groups, group(), steps_.head_dim()}), into.lse.reshape({groups, group()})},
      groups_);
}

/// Attends what has come, and merges all results into `own`.
void LevelAttention::finish(int64_t layer, const TensorView& q, const Partial& own) {
  const Plan& plan = *plan_;
  const LevelLayout& layout = plan.layout;
  const int64_t width = group() * steps_.head_dim();
  const int64_t outputs = (layout.levels - 1) * layout.queries_here;
  outputs_here_.reserve(outputs * width * size_of(DType::fp32));
  output_sums_.reserve(outputs * group() * size_of(DType::fp32));
  const DType wire = steps_.wire();
  if (wire != DType::fp32) outputs_out_.reserve(outputs * width * size_of(wire));
  home_.reserve(layout.home * width * size_of(wire));
  home_sums_.reserve(layout.home * group() * size_of(DType::fp32));
  const bool learns = keeps_borders() && weighs(layer);
  if (learns) need_.attended_here(own.lse);
  std::vector<std::unique_ptr<comm::Transfer>> coming_home;
  std::vector<int64_t> sent_home;
  for (size_t i = 0; i < layout.steps.size(); ++i) {
    const LevelLayout::Step& step = layout.steps[i];
    steps_.wait(*arriving_[i], "level_tokens", arriving_bytes_[i]);
    cast(step.queries_arriving, queries_in_, wire, queries_here_, DType::fp32);
    if (!step.items.empty())
      attend(layout.queries_here, layout.positions, step.items, step.runs, step.pairs, keys_here_,
             results(outputs_here_, DType::fp32, output_sums_, layout.output_at(step.level, 0),
                     layout.queries_here));
    cast(step.outputs_leaving, outputs_here_, DType::fp32, outputs_out_, wire);
    const device::Buffer& leaving = wire == DType::fp32 ? outputs_here_ : outputs_out_;
    comm::Exchange exchange;
    int64_t sent = 0;
    for (const auto& [to, begin, count] : step.outputs_leaving)
      for (const auto& part : {entries(leaving, wire, width, begin, count),
                               entries(output_sums_, DType::fp32, group(), begin, count)})
        exchange.sends.push_back({part, to}), sent += static_cast<int64_t>(part.size());
    for (const auto& [from, begin, count] : step.outputs_arriving)
      for (const auto& part : {entries(home_, wire, width, begin, count),
                               entries(home_sums_, DType::fp32, group(), begin, count)})
        exchange.receives.push_back({part, from});
    const comm::Operation operation{"level_outputs", ring_->next_operation()};
    coming_home.push_back(ring_->start_exchange(exchange, operation));
    sent_home.push_back(sent);
  }
  for (size_t i = 0; i < layout.steps.size(); ++i) {
    const LevelLayout::Step& step = layout.steps[i];
    for (const Result& result : step.from_here)
      merge(result, query_order(),
            results(outputs_here_, DType::fp32, output_sums_, result.begin, result.rows.size()),
            own);
    steps_.wait(*coming_home[i], "level_outputs", sent_home[i]);
    for (const Result& result : step.from_others)
      merge(result, query_order(),
            results(home_, wire, home_sums_, result.begin, result.rows.size()), own);
  }
  for (const Plan::Inner& inner : plan.inner) attend_kept(layer, inner, q, own);
  if (plan.sinks.keys > 0) {
    steps_.wait(*sinks_coming_, "level_sinks", sink_bytes_);
    attend_own(plan.sinks, query_order_, sink_keys_, q, own);
  }
  if (learns) learn_need(plan, own);
  totals_.add(layer, plan.count);
}

/// Attends the kept tokens of each part here to each other in the arenas `here`, which nobody else needs now.
void LevelAttention::attend_kept(int64_t layer, const Plan::Inner& inner, const TensorView& q,
                                 const Partial& into) {
  const auto in_order = [&](const Orders& orders, const std::vector<Pick>& picks) {
    Orders sorted = orders;
    for (const Pick& pick : picks) {
      std::vector<int64_t>& order = sorted[place(pick.sequence, pick.part)][pick.head];
      std::sort(order.begin(), order.begin() + pick.tokens.end);
    }
    return sorted;
  };
  const Orders rows = in_order(row_order_, inner.rows);
  reserve(keys_here_, inner.keys);
  pick_keys(layer, inner.cached, in_order(cached_order_, inner.cached), true, keys_here_);
  pick_keys(layer, inner.rows, rows, false, keys_here_);
  attend_own(inner, rows, keys_here_, q, into);
}

/// Attends own rows to these keys, and merges the results.
void LevelAttention::attend_own(const Plan::Inner& inner, const Orders& rows, const Arena& keys,
                                const TensorView& q, const Partial& into) {
  if (inner.queries == 0) return;
  const int64_t width = group() * steps_.head_dim() * size_of(DType::fp32);
  queries_here_.reserve(inner.queries * width);
  outputs_here_.reserve(inner.queries * width);
  output_sums_.reserve(inner.queries * group() * size_of(DType::fp32));
  pick_queries(q, inner.asking, rows, queries_here_);
  attend(inner.queries, inner.call.positions, inner.call.items, inner.call.runs,
         inner.call.flops.at(0) / (4 * static_cast<double>(group() * steps_.head_dim())), keys,
         results(outputs_here_, DType::fp32, output_sums_, 0, inner.queries));
  for (const Pick& pick : inner.merged)
    merge({pick.sequence, pick.part, pick.head, pick.tokens, pick.to}, rows,
          results(outputs_here_, DType::fp32, output_sums_, pick.to, pick.tokens.size()), into);
}

/// Call it after attention to the sinks, whose log-sums are still there.
void LevelAttention::learn_need(const Plan& plan, const Partial& attended) {
  if (plan.sinks.queries > 0) {
    groups_.clear();
    for (const Pick& pick : plan.sinks.asking) add_groups(pick, query_order_);
    need_.attended_always(
        results(outputs_here_, DType::fp32, output_sums_, 0, plan.sinks.queries).lse, groups_);
  }
  std::vector<int64_t> rows;
  for (size_t i = 0; i < sequences_.size(); ++i)
    for (int part = here_.first; part < here_.end(); ++part) {
      const Sequence& sequence = sequences_[i];
      const std::vector<int64_t>& order = query_order_[place(static_cast<int>(i), part)].front();
      const int64_t kept = kept_rows(plan.rule, levels_.count(), sequence.parts[part]);
      for (int64_t at = 0; at < kept; ++at)
        rows.push_back(sequence.here[part].first_row + order[at]);
    }
  need_.learn(attended.lse, rows);
  if (other_heads_) totals_.add_importance(other_heads_->largest(need_.of_rows()));
}

void LevelAttention::weigh(int64_t layer, const TensorView& q, const Partial& attended) {
  if (!weighs(layer)) return;
  const int64_t window = steps_.window(layer);
  WeighCost cost = importance_.weigh(layer, window, q, attended);
  if (window == 0) cost.pairs += plan_->need_pairs;
  if (!other_heads_) return totals_.add(cost, rank_, shape_.links);
  totals_.importance_pairs += cost.pairs;
  for (size_t i = 0; i < sequences_.size(); ++i)
    totals_.add_importance(other_heads_->sum_of_kv_head(importance_.of_sequence(i)));
}

}  // namespace pecia::attention
