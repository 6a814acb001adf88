#include "lib/context/ring_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "lib/parallel/ring.hpp"

namespace pecia::context {

using parallel::GlobalRange;
using parallel::IndexRun;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;
using report::Kind;
using report::ScopedSpan;

RingAttention::RingAttention(comm::Communicator& ring, kernels::Backend& backend,
                             device::Stream& stream, report::Recorder& recorder, KvCache& cache,
                             int64_t num_heads, std::vector<int64_t> windows)
    : ring_(ring),
      backend_(backend),
      stream_(stream),
      recorder_(recorder),
      cache_(cache),
      num_heads_(num_heads),
      windows_(std::move(windows)),
      map_(ring.size()),
      query_positions_(ring.size()),
      away_(ring.size()),
      home_(ring.size()) {
  PECIA_CHECK(static_cast<int64_t>(windows_.size()) == cache.shape().layers,
              "{} windows for {} layers", windows_.size(), cache.shape().layers);
}

void RingAttention::add(SequenceId sequence, int64_t reserved, std::optional<SequenceId> parent) {
  cache_.reserve(sequence, reserved);
  map_.add(sequence, reserved, parent);
}

void RingAttention::remove(SequenceId sequence) {
  map_.remove(sequence);
  cache_.release(sequence);
}

int RingAttention::visiting(int step) const {
  return parallel::visiting_rank(size(), ring_.rank(), step);
}

int64_t RingAttention::message_elements() const {
  return message_tokens_ * cache_.shape().num_kv_heads * head_dim();
}

void RingAttention::begin_pass(const Pass& pass, parallel::Ring ring) {
  mode_ = ring;
  plan_rows(pass);
  for (const PassSequence& sequence : pass) map_.append(sequence);
  plan_units(pass);

  visits_.clear();
  key_positions_.assign(mode_ == parallel::Ring::pass_kv ? size() : 1, {});
  if (mode_ == parallel::Ring::broadcast_q) return plan_visitors(pass);
  const UnitRuns own = runs_in_cache(key_positions_[0]);
  for (int step = 0; step < size(); ++step) {
    if (mode_ == parallel::Ring::pass_q)
      visits_.push_back(visit(pass, visiting(step), ring_.rank(), own));
    else if (step == 0)
      visits_.push_back(visit(pass, ring_.rank(), ring_.rank(), own));
    else
      visits_.push_back(visit(pass, ring_.rank(), visiting(step),
                              runs_in_message(visiting(step), key_positions_[step])));
  }
}

/// Positions of every rank's rows, and the cache slots of this rank's: the next ones of each
/// sequence.
void RingAttention::plan_rows(const Pass& pass) {
  for (auto& positions : query_positions_) positions.clear();
  slots_.clear();
  for (const PassSequence& sequence : pass) {
    for (int rank = 0; rank < size(); ++rank)
      for (const GlobalRange& range : rows_of(sequence, size(), rank))
        for (int64_t position = range.begin; position < range.end; ++position)
          query_positions_[rank].push_back(position);
    int64_t skipped = map_.held(sequence.sequence, ring_.rank());
    int64_t wanted = parallel::num_rows({sequence}, size(), ring_.rank());
    for (const SlotRange& range : cache_.slots(sequence.sequence)) {
      const int64_t begin = std::min(range.begin + skipped, range.end);
      const int64_t end = std::min(begin + wanted, range.end);
      for (int64_t slot = begin; slot < end; ++slot) slots_.push_back(slot);
      skipped -= begin - range.begin;
      wanted -= end - begin;
    }
    PECIA_CHECK(wanted == 0, "sequence {} has {} rows more than KV slots", sequence.sequence,
                wanted);
  }
}

void RingAttention::plan_units(const Pass& pass) {
  std::set<SequenceId> needed;
  for (const PassSequence& sequence : pass)
    for (const SequenceId member : map_.lineage(sequence.sequence)) needed.insert(member);
  units_.clear();
  message_tokens_ = 0;
  for (const SequenceId sequence : needed) {
    int64_t most = 0;
    for (int rank = 0; rank < size(); ++rank) most = std::max(most, map_.held(sequence, rank));
    units_.push_back({sequence, most, message_tokens_});
    message_tokens_ += most;
  }
}

/// This rank's own keys, where they are cached. `positions` is filled and must stay where it is.
RingAttention::UnitRuns RingAttention::runs_in_cache(std::vector<int64_t>& positions) const {
  int64_t total = 0;
  for (const Unit& unit : units_) total += map_.held(unit.sequence, ring_.rank());
  positions.resize(total);
  const int64_t head_stride = cache_.capacity() * head_dim();
  UnitRuns runs;
  int64_t* next = positions.data();
  for (const Unit& unit : units_) {
    const auto& ranges = map_.ranges(unit.sequence, ring_.rank());
    parallel::fill_positions(ranges, next);
    auto slots = cache_.slots(unit.sequence).begin();
    int64_t used = 0;  // of *slots
    for (IndexRun run : parallel::runs_of(ranges)) {
      while (run.count > 0) {
        if (used == slots->size()) ++slots, used = 0;
        const int64_t count = std::min(run.count, slots->size() - used);
        runs[unit.sequence].push_back(
            {(slots->begin + used) * head_dim(), head_stride, count, next + run.begin});
        run.begin += count, run.count -= count, used += count;
      }
    }
    next += map_.held(unit.sequence, ring_.rank());
  }
  return runs;
}

/// The keys of `rank` in its travelling message.
RingAttention::UnitRuns RingAttention::runs_in_message(int rank,
                                                       std::vector<int64_t>& positions) const {
  int64_t total = 0;
  for (const Unit& unit : units_) total += map_.held(unit.sequence, rank);
  positions.resize(total);
  UnitRuns runs;
  int64_t* next = positions.data();
  for (const Unit& unit : units_) {
    const auto& ranges = map_.ranges(unit.sequence, rank);
    parallel::fill_positions(ranges, next);
    const int64_t base = unit.offset * cache_.shape().num_kv_heads * head_dim();
    for (const IndexRun& run : parallel::runs_of(ranges))
      runs[unit.sequence].push_back({base + run.begin * head_dim(), unit.padded_tokens * head_dim(),
                                     run.count, next + run.begin});
    next += map_.held(unit.sequence, rank);
  }
  return runs;
}

RingAttention::Visit RingAttention::visit(const Pass& pass, int query_rank, int key_rank,
                                          const UnitRuns& runs) const {
  Visit visit;
  int64_t row = 0;
  add_items(visit, pass, query_rank, key_rank, row, query_positions_[query_rank], runs);
  return visit;
}

/// Rows of `query_rank` in the pass, from `row` on, against the runs of keys of `key_rank`.
void RingAttention::add_items(Visit& visit, const Pass& pass, int query_rank, int key_rank,
                              int64_t& row, const std::vector<int64_t>& positions,
                              const UnitRuns& runs) const {
  for (const PassSequence& sequence : pass) {
    const int64_t rows = parallel::num_rows({sequence}, size(), query_rank);
    kernels::AttentionItem item{row, rows, static_cast<int64_t>(visit.runs.size()), 0};
    for (const SequenceId member : map_.lineage(sequence.sequence)) {
      if (const auto found = runs.find(member); found != runs.end())
        visit.runs.insert(visit.runs.end(), found->second.begin(), found->second.end());
      for (const int64_t window : std::set<int64_t>(windows_.begin(), windows_.end()))
        for (int64_t i = row; i < row + rows; ++i) {
          const int64_t position = positions[i];
          const int64_t first = window > 0 ? position - window + 1 : 0;
          visit.flops[window] += 4.0 * static_cast<double>(num_heads_ * head_dim()) *
                                 static_cast<double>(parallel::count_between(
                                     map_.ranges(member, key_rank), first, position + 1));
        }
    }
    item.num_runs = static_cast<int64_t>(visit.runs.size()) - item.first_run;
    visit.items.push_back(item);
    row += rows;
  }
}

void RingAttention::run(int64_t layer, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out) {
  store(layer, k, v);
  switch (mode_) {
    case parallel::Ring::pass_kv:
      return run_pass_kv(layer, q, out);
    case parallel::Ring::pass_q:
      return run_pass_q(layer, q, out);
    case parallel::Ring::broadcast_q:
      return run_broadcast_q(layer, q, out);
  }
}

void RingAttention::store(int64_t layer, const TensorView& k, const TensorView& v) {
  const ScopedSpan span(recorder_, "kv_store", Kind::compute,
                        2 * k.elements() * size_of(cache_.shape().dtype));
  backend_.kv_store({k, slots_, cache_.k(layer)}, stream_);
  backend_.kv_store({v, slots_, cache_.v(layer)}, stream_);
}

void RingAttention::attend(int64_t layer, const Visit& visit, const std::vector<int64_t>& positions,
                           const TensorView& q, const void* k, const void* v, const TensorView& out,
                           const TensorView& lse) {
  const int64_t window = windows_[layer];
  const auto flops = visit.flops.find(window);
  const ScopedSpan span(recorder_, "attention", Kind::compute, 0,
                        flops == visit.flops.end() ? 0 : flops->second);
  const KvShape& shape = cache_.shape();
  const auto at = [&](const void* base, int64_t element) {
    return static_cast<const std::byte*>(base) + element * size_of(shape.dtype);
  };
  std::vector<kernels::KeyRun> runs;
  runs.reserve(visit.runs.size());
  for (const RunRef& run : visit.runs)
    runs.push_back(
        {at(k, run.offset), at(v, run.offset), run.head_stride, run.num_keys, run.positions});
  backend_.attention({.q = q,
                      .query_positions = positions,
                      .items = visit.items,
                      .runs = runs,
                      .kv_dtype = shape.dtype,
                      .num_kv_heads = shape.num_kv_heads,
                      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                      .window = window,
                      .out = out,
                      .lse = lse},
                     stream_);
}

void RingAttention::merge(const TensorView& part_out, const TensorView& part_lse,
                          const TensorView& out, const TensorView& lse) {
  const ScopedSpan span(recorder_, "merge", Kind::compute, 8 * part_out.elements());
  backend_.merge({part_out, part_lse, {}, out, lse}, stream_);
}

void RingAttention::wait(comm::Transfer& transfer, const char* name, int64_t bytes) {
  const ScopedSpan span(recorder_, name, Kind::comm, bytes);
  transfer.wait();
}

/// Local keys and values of all units, one after the other: K [num_kv_heads, padded, head_dim] of
/// each unit, then V likewise. What is padding is left as it is; no schedule ever points at it.
void RingAttention::pack(int64_t layer, std::byte* message) {
  const ScopedSpan span(recorder_, "pack", Kind::compute,
                        2 * message_elements() * size_of(cache_.shape().dtype));
  const int64_t token_bytes = head_dim() * size_of(cache_.shape().dtype);
  const int64_t heads = cache_.shape().num_kv_heads;
  for (const TensorView& cached : {cache_.k(layer), cache_.v(layer)}) {
    for (const Unit& unit : units_)
      for (int64_t head = 0; head < heads; ++head) {
        const auto* from = static_cast<const std::byte*>(cached.row(head));
        std::byte* to = message + (unit.offset * heads + head * unit.padded_tokens) * token_bytes;
        int64_t left = map_.held(unit.sequence, ring_.rank());
        for (const SlotRange& slots : cache_.slots(unit.sequence)) {
          const int64_t count = std::min(left, slots.size());
          std::memcpy(to, from + slots.begin * token_bytes, count * token_bytes);
          to += count * token_bytes;
          left -= count;
        }
      }
    message += message_elements() * size_of(cached.dtype());
  }
}

void RingAttention::run_pass_kv(int64_t layer, const TensorView& q, const TensorView& out) {
  const int rank = ring_.rank(), right = (rank + 1) % size(), left = (rank + size() - 1) % size();
  const TensorView lse = lse_.tensor(DType::fp32, {q.rows(), num_heads_});
  const int64_t half_bytes = message_elements() * size_of(cache_.shape().dtype);
  const size_t bytes = 2 * half_bytes;
  if (size() > 1) {
    for (device::Buffer& buffer : travelling_) buffer.reserve(bytes);
    pack(layer, travelling_[0].as<std::byte>());
  }
  for (int step = 0; step < size(); ++step) {
    device::Buffer& here = travelling_[step % 2];
    std::unique_ptr<comm::Transfer> transfer;
    if (step + 1 < size())
      transfer =
          ring_.start_send_receive({here.as<std::byte>(), bytes}, right,
                                   {travelling_[(step + 1) % 2].as<std::byte>(), bytes}, left);
    if (step == 0) {
      attend(layer, visits_[0], query_positions_[rank], q, cache_.k(layer).data(),
             cache_.v(layer).data(), out, lse);
    } else {
      const TensorView part_out = part_out_.tensor(DType::fp32, {q.rows(), num_heads_, head_dim()});
      const TensorView part_lse = part_lse_.tensor(DType::fp32, {q.rows(), num_heads_});
      attend(layer, visits_[step], query_positions_[rank], q, here.data(),
             here.as<std::byte>() + half_bytes, part_out, part_lse);
      merge(part_out, part_lse, out, lse);
    }
    if (transfer) wait(*transfer, "ring_pass_kv", static_cast<int64_t>(bytes));
  }
}

void RingAttention::run_pass_q(int64_t layer, const TensorView& q, const TensorView& out) {
  const int rank = ring_.rank(), right = (rank + 1) % size(), left = (rank + size() - 1) % size();
  const auto rows = [&](int of) { return static_cast<int64_t>(query_positions_[of].size()); };
  const auto q_bytes = [&](int of) {
    return static_cast<size_t>(rows(of) * num_heads_ * head_dim() * size_of(DType::fp32));
  };
  // O and LSE of a rank's rows lie in one block, which is sent home as it is.
  const auto block_bytes = [&](int of) {
    return static_cast<size_t>(rows(of) * num_heads_ * (head_dim() + 1) * size_of(DType::fp32));
  };
  const auto out_of = [&](device::Buffer& block, int of) {
    return TensorView(block.data(), DType::fp32, {rows(of), num_heads_, head_dim()});
  };
  const auto lse_of = [&](device::Buffer& block, int of) {
    return TensorView(static_cast<void*>(block.as<float>() + rows(of) * num_heads_ * head_dim()),
                      DType::fp32, {rows(of), num_heads_});
  };

  const TensorView lse = lse_.tensor(DType::fp32, {q.rows(), num_heads_});
  TensorView visiting_q = q;
  for (int step = 0; step < size(); ++step) {
    const int owner = visiting(step);
    std::unique_ptr<comm::Transfer> transfer;
    device::Buffer& next = travelling_[step % 2];
    if (step + 1 < size()) {
      const int coming = visiting(step + 1);
      next.reserve(static_cast<int64_t>(q_bytes(coming)));
      transfer = ring_.start_send_receive(
          {static_cast<const std::byte*>(visiting_q.data()), q_bytes(owner)}, right,
          {next.as<std::byte>(), q_bytes(coming)}, left);
    }
    const void *k = cache_.k(layer).data(), *v = cache_.v(layer).data();
    if (step == 0) {
      attend(layer, visits_[0], query_positions_[rank], q, k, v, out, lse);
    } else {
      away_[owner].reserve(static_cast<int64_t>(block_bytes(owner)));
      attend(layer, visits_[step], query_positions_[owner], visiting_q, k, v,
             out_of(away_[owner], owner), lse_of(away_[owner], owner));
    }
    if (transfer) {
      wait(*transfer, "ring_pass_q", static_cast<int64_t>(q_bytes(owner)));
      const int coming = visiting(step + 1);
      visiting_q = TensorView(next.data(), DType::fp32, {rows(coming), num_heads_, head_dim()});
    }
  }
  if (size() == 1) return;

  comm::Blocks blocks;
  int64_t sent = 0;
  for (int other = 0; other < size(); ++other) {
    const size_t away = other == rank ? 0 : block_bytes(other);
    const size_t home = other == rank ? 0 : block_bytes(rank);
    home_[other].reserve(static_cast<int64_t>(home));
    blocks.send.emplace_back(away_[other].as<std::byte>(), away);
    blocks.receive.emplace_back(home_[other].as<std::byte>(), home);
    sent += static_cast<int64_t>(away);
  }
  wait(*ring_.start_all_to_all(blocks), "all_to_all", sent);
  for (int other = 0; other < size(); ++other)
    if (other != rank) merge(out_of(home_[other], rank), lse_of(home_[other], rank), out, lse);
}

RingTraffic RingAttention::expected_traffic() const {
  if (mode_ == parallel::Ring::broadcast_q) return broadcast_q_traffic();
  RingTraffic traffic;
  if (mode_ == parallel::Ring::pass_kv) {
    traffic.ring_bytes = (size() - 1) * 2 * message_elements() * size_of(cache_.shape().dtype);
    return traffic;
  }
  for (int step = 0; step + 1 < size(); ++step)
    traffic.ring_bytes += static_cast<int64_t>(query_positions_[visiting(step)].size()) *
                          num_heads_ * head_dim() * size_of(DType::fp32);
  for (int other = 0; other < size(); ++other)
    if (other != ring_.rank())
      traffic.all_to_all_bytes += static_cast<int64_t>(query_positions_[other].size()) *
                                  (num_heads_ * head_dim() + num_heads_) * size_of(DType::fp32);
  return traffic;
}

}  // namespace pecia::context
