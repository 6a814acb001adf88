#include "lib/context/invariant_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "lib/parallel/merge_tree.hpp"
#include "lib/parallel/ring.hpp"
#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::context {

using kernels::RowInvariant;
using parallel::GlobalRange;
using parallel::layout_ranks;
using parallel::MergeTree;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;
using report::Kind;
using report::ScopedSpan;

namespace {

// Up to so many rows, one call for all virtual ranks of a visit keeps more threads busy and costs
// little memory; which is chosen changes no bit.
constexpr int64_t most_stacked_rows = 64;

/// The cache has a list of slots for each virtual rank.
SequenceId slots_of(SequenceId sequence, int virtual_rank) {
  return sequence * layout_ranks + virtual_rank;
}

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<std::byte*>(tensor.data()),
          static_cast<size_t>(tensor.elements() * size_of(tensor.dtype()))};
}

void copy(const TensorView& from, const TensorView& to) {
  if (from.elements() > 0) std::memcpy(to.data(), from.data(), bytes_of(from).size());
}

}  // namespace

InvariantAttention::InvariantAttention(comm::Communicator& ring, kernels::Backend& backend,
                                       device::Stream& stream, report::Recorder& recorder,
                                       KvCache& cache, int64_t num_heads,
                                       std::vector<int64_t> windows)
    : ring_(ring),
      backend_(backend),
      stream_(stream),
      recorder_(recorder),
      cache_(cache),
      num_heads_(num_heads),
      windows_(std::move(windows)),
      map_(layout_ranks),
      subtrees_(layout_ranks),
      waiting_(ring.size()) {
  PECIA_CHECK(parallel::can_play_layout(ring.size()), "{} ranks cannot play {}", ring.size(),
              layout_ranks);
  PECIA_CHECK(static_cast<int64_t>(windows_.size()) == cache.shape().layers,
              "{} windows for {} layers", windows_.size(), cache.shape().layers);
}

int InvariantAttention::played() const {
  return layout_ranks / size();
}

void InvariantAttention::add(SequenceId sequence, int64_t reserved,
                             std::optional<SequenceId> parent) {
  PECIA_CHECK(reserved % played() == 0, "{} slots for {} virtual ranks", reserved, played());
  map_.add(sequence, reserved / played(), parent);
  for (int i = 0; i < played(); ++i)
    cache_.reserve(slots_of(sequence, first_played(ring_.rank()) + i), reserved / played());
}

void InvariantAttention::remove(SequenceId sequence) {
  map_.remove(sequence);
  for (int i = 0; i < played(); ++i)
    cache_.release(slots_of(sequence, first_played(ring_.rank()) + i));
}

int64_t InvariantAttention::message_elements() const {
  return message_tokens_ * cache_.shape().num_kv_heads * head_dim();
}

void InvariantAttention::begin_pass(const Pass& pass, parallel::Ring ring) {
  for (const PassSequence& sequence : pass)
    PECIA_CHECK(sequence.virtual_ranks == layout_ranks, "sequence {} is cut for {} ranks, not {}",
                sequence.sequence, sequence.virtual_ranks, layout_ranks);
  const int rank = ring_.rank();
  keys_travel_ = size() > 1 && ring == parallel::Ring::pass_kv;
  own_ = rows_of_ranks(pass, rank, rank + 1);
  all_ = size() > 1 && !keys_travel_ ? rows_of_ranks(pass, 0, size()) : QueryRows{};
  counts_.clear();
  for (int other = 0; other < size(); ++other)
    counts_.push_back(parallel::num_rows(pass, size(), other));
  plan_slots(pass);
  for (const PassSequence& sequence : pass) map_.append(sequence);
  plan_units(pass);

  visits_.clear();
  visits_.push_back(visit(size() > 1 && !keys_travel_ ? all_ : own_, rank, false));
  for (int step = 1; keys_travel_ && step < size(); ++step)
    visits_.push_back(visit(own_, parallel::visiting_rank(size(), rank, step), true));
}

InvariantAttention::QueryRows InvariantAttention::rows_of_ranks(const Pass& pass, int first,
                                                                int end) const {
  QueryRows rows;
  for (int rank = first; rank < end; ++rank)
    for (const PassSequence& sequence : pass) {
      const int64_t begin = rows.count();
      for (const GlobalRange& range : rows_of(sequence, size(), rank))
        for (int64_t position = range.begin; position < range.end; ++position)
          rows.positions.push_back(position);
      if (rows.count() > begin)
        rows.parts.push_back({sequence.sequence, begin, rows.count() - begin});
    }
  return rows;
}

/// The next slots of each virtual rank, given to the rows that it owns.
void InvariantAttention::plan_slots(const Pass& pass) {
  slots_.assign(own_.positions.size(), 0);
  auto part = own_.parts.begin();
  for (const PassSequence& sequence : pass) {
    if (part == own_.parts.end() || part->sequence != sequence.sequence) continue;
    const auto first = own_.positions.begin() + part->first_row, last = first + part->num_rows;
    for (int i = 0; i < played(); ++i) {
      const int virtual_rank = first_played(ring_.rank()) + i;
      int64_t skipped = map_.held(sequence.sequence, virtual_rank);
      const auto& taken = cache_.slots(slots_of(sequence.sequence, virtual_rank));
      auto slots = taken.begin();
      for (const GlobalRange& range : rows_of(sequence, layout_ranks, virtual_rank)) {
        // A range's rows lie next to each other, as its positions do.
        auto row = std::lower_bound(first, last, range.begin) - own_.positions.begin();
        for (int64_t n = 0; n < range.size(); ++n, ++row, ++skipped) {
          while (slots != taken.end() && skipped >= slots->size()) skipped -= slots++->size();
          PECIA_CHECK(slots != taken.end(), "sequence {} has more rows than KV slots",
                      sequence.sequence);
          slots_[row] = slots->begin + skipped;
        }
      }
    }
    ++part;
  }
}

void InvariantAttention::plan_units(const Pass& pass) {
  std::set<SequenceId> needed;
  for (const PassSequence& sequence : pass)
    for (const SequenceId member : map_.lineage(sequence.sequence)) needed.insert(member);
  units_.clear();
  message_tokens_ = 0;
  for (const SequenceId sequence : needed) {
    Unit unit{sequence, 0, message_tokens_, {}};
    for (int virtual_rank = 0; virtual_rank < layout_ranks; ++virtual_rank) {
      const int64_t held = map_.held(sequence, virtual_rank);
      unit.padded_tokens = std::max(unit.padded_tokens, held);
      unit.positions.emplace_back(held);
      parallel::fill_positions(map_.ranges(sequence, virtual_rank), unit.positions.back().data());
    }
    message_tokens_ += played() * unit.padded_tokens;
    units_.push_back(std::move(unit));
  }
}

/// A virtual rank's keys of a sequence, in the order they were cached: in the cache of this rank,
/// or in the message of the rank that plays it.
std::vector<InvariantAttention::RunRef> InvariantAttention::runs_of(const Unit& unit,
                                                                    int virtual_rank,
                                                                    bool in_message) const {
  const std::vector<int64_t>& positions = unit.positions[virtual_rank];
  auto left = static_cast<int64_t>(positions.size());
  if (left == 0) return {};
  if (in_message) {
    const int64_t block = unit.offset + virtual_rank % played() * unit.padded_tokens;
    return {{block * cache_.shape().num_kv_heads * head_dim(), unit.padded_tokens * head_dim(),
             left, positions.data()}};
  }
  std::vector<RunRef> runs;
  for (const SlotRange& range : cache_.slots(slots_of(unit.sequence, virtual_rank))) {
    const int64_t count = std::min(left, range.size());
    if (count == 0) break;
    runs.push_back({range.begin * head_dim(), cache_.capacity() * head_dim(), count,
                    positions.data() + positions.size() - left});
    left -= count;
  }
  return runs;
}

/// One more copy of the rows, against the keys of a virtual rank.
void InvariantAttention::add_items(Call& call, const QueryRows& rows, int virtual_rank,
                                   bool in_message) const {
  const auto first_row = static_cast<int64_t>(call.positions.size());
  call.positions.insert(call.positions.end(), rows.positions.begin(), rows.positions.end());
  for (const QueryRows::Part& part : rows.parts) {
    kernels::AttentionItem item{first_row + part.first_row, part.num_rows,
                                static_cast<int64_t>(call.runs.size()), 0};
    for (const SequenceId member : map_.lineage(part.sequence)) {
      const auto unit = std::find_if(units_.begin(), units_.end(), [&](const Unit& candidate) {
        return candidate.sequence == member;
      });
      const std::vector<RunRef> runs = runs_of(*unit, virtual_rank, in_message);
      call.runs.insert(call.runs.end(), runs.begin(), runs.end());
      for (const int64_t window : std::set<int64_t>(windows_.begin(), windows_.end()))
        for (int64_t row = part.first_row; row < part.first_row + part.num_rows; ++row) {
          const int64_t position = rows.positions[row];
          const int64_t first = window > 0 ? position - window + 1 : 0;
          call.flops[window] += 4.0 * static_cast<double>(num_heads_ * head_dim()) *
                                static_cast<double>(parallel::count_between(
                                    map_.ranges(member, virtual_rank), first, position + 1));
        }
    }
    item.num_runs = static_cast<int64_t>(call.runs.size()) - item.first_run;
    call.items.push_back(item);
  }
}

InvariantAttention::Visit InvariantAttention::visit(const QueryRows& rows, int key_rank,
                                                    bool in_message) const {
  Visit visit{{}, rows.count() <= most_stacked_rows};
  for (int i = 0; i < played(); ++i) {
    if (i == 0 || !visit.stacked) visit.calls.emplace_back();
    add_items(visit.calls.back(), rows, first_played(key_rank) + i, in_message);
  }
  return visit;
}

void InvariantAttention::run(int64_t layer, const TensorView& q, const TensorView& k,
                             const TensorView& v, const TensorView& out) {
  store(layer, k, v);
  const Partial to{out, lse_.tensor(DType::fp32, {q.rows(), num_heads_})};
  if (size() == 1)
    attend_rank(layer, visits_[0], q, cached(layer), to);
  else if (keys_travel_)
    pass_keys(layer, q, to);
  else
    pass_queries(layer, q, to);
}

void InvariantAttention::store(int64_t layer, const TensorView& k, const TensorView& v) {
  const ScopedSpan span(recorder_, "kv_store", Kind::compute,
                        2 * k.elements() * size_of(cache_.shape().dtype));
  backend_.kv_store({k, slots_, cache_.k(layer)}, stream_);
  backend_.kv_store({v, slots_, cache_.v(layer)}, stream_);
}

InvariantAttention::Partial InvariantAttention::partial(device::Buffer& out, device::Buffer& lse,
                                                        int64_t rows) const {
  return {out.tensor(DType::fp32, {rows, num_heads_, head_dim()}),
          lse.tensor(DType::fp32, {rows, num_heads_})};
}

void InvariantAttention::attend(int64_t layer, const Call& call, const TensorView& q, Keys keys,
                                const Partial& to) {
  const int64_t window = windows_[layer];
  const auto flops = call.flops.find(window);
  const ScopedSpan span(recorder_, "attention", Kind::compute, 0,
                        flops == call.flops.end() ? 0 : flops->second);
  const KvShape& shape = cache_.shape();
  const auto at = [&](const void* base, int64_t element) {
    return static_cast<const std::byte*>(base) + element * size_of(shape.dtype);
  };
  std::vector<kernels::KeyRun> runs;
  runs.reserve(call.runs.size());
  for (const RunRef& run : call.runs)
    runs.push_back({at(keys.k, run.offset), at(keys.v, run.offset), run.head_stride, run.num_keys,
                    run.positions});
  backend_.attention({.q = q,
                      .query_positions = call.positions,
                      .items = call.items,
                      .runs = runs,
                      .kv_dtype = shape.dtype,
                      .num_kv_heads = shape.num_kv_heads,
                      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                      .window = window,
                      .out = to.out,
                      .lse = to.lse,
                      .row_invariant = RowInvariant::yes},
                     stream_);
}

void InvariantAttention::merge(const Partial& part, const Partial& into) {
  const ScopedSpan span(recorder_, "merge", Kind::compute, 8 * part.out.elements());
  backend_.merge({part.out, part.lse, {}, into.out, into.lse}, stream_);
}

/// The keys of one rank: the subtree of the virtual ranks that it plays.
void InvariantAttention::attend_rank(int64_t layer, const Visit& visit, const TensorView& q,
                                     Keys keys, const Partial& to) {
  if (visit.stacked && played() > 1)
    attend_stacked(layer, visit, q, keys, to);
  else
    attend_subtree(layer, visit, q, keys, 0, played(), 0, to);
}

/// Leaf by leaf, each merged as soon as its sibling is there: one result waits for each level.
void InvariantAttention::attend_subtree(int64_t layer, const Visit& visit, const TensorView& q,
                                        Keys keys, int first, int count, size_t depth,
                                        const Partial& to) {
  if (count == 1) return attend(layer, visit.calls[first], q, keys, to);
  const int half = count / 2;
  attend_subtree(layer, visit, q, keys, first, half, depth, to);
  const Partial right = partial(subtrees_[depth].out, subtrees_[depth].lse, q.rows());
  attend_subtree(layer, visit, q, keys, first + half, half, depth + 1, right);
  merge(right, to);
}

/// All leaves at once, on a copy of the queries for each.
void InvariantAttention::attend_stacked(int64_t layer, const Visit& visit, const TensorView& q,
                                        Keys keys, const Partial& to) {
  const int64_t rows = q.rows();
  const TensorView queries =
      stacked_q_.tensor(DType::fp32, {played() * rows, num_heads_, head_dim()});
  const Partial all = partial(stacked_.out, stacked_.lse, played() * rows);
  const auto leaf = [&](int index) {
    return Partial{all.out.slice_rows(index * rows, rows), all.lse.slice_rows(index * rows, rows)};
  };
  for (int i = 0; i < played(); ++i) copy(q, queries.slice_rows(i * rows, rows));
  attend(layer, visit.calls[0], queries, keys, all);
  MergeTree tree(played());
  for (int i = 0; i < played(); ++i)
    for (const MergeTree::Merge& step : tree.arrive(i)) merge(leaf(step.from), leaf(step.into));
  copy(leaf(0).out, to.out);
  copy(leaf(0).lse, to.lse);
}

/// Local keys and values of all units, one after the other: K [num_kv_heads, padded, head_dim] of
/// each unit and virtual rank, then V likewise. What is padding is left as it is; no run ever
/// points at it.
void InvariantAttention::pack(int64_t layer, std::byte* message) {
  const int64_t token_bytes = head_dim() * size_of(cache_.shape().dtype);
  const ScopedSpan span(recorder_, "pack", Kind::compute,
                        2 * message_elements() * size_of(cache_.shape().dtype));
  for (const TensorView& cached : {cache_.k(layer), cache_.v(layer)})
    for (const Unit& unit : units_)
      for (int i = 0; i < played(); ++i) {
        const int virtual_rank = first_played(ring_.rank()) + i;
        for (int64_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
          const auto* from = static_cast<const std::byte*>(cached.row(head));
          std::byte* to = message;
          int64_t left = map_.held(unit.sequence, virtual_rank);
          for (const SlotRange& slots : cache_.slots(slots_of(unit.sequence, virtual_rank))) {
            const int64_t count = std::min(left, slots.size());
            std::memcpy(to, from + slots.begin * token_bytes, count * token_bytes);
            to += count * token_bytes;
            left -= count;
          }
          message += unit.padded_tokens * token_bytes;
        }
      }
}

/// Each rank's keys visit as in ring attention. Their results are merged as the tree allows, and
/// wait until then.
void InvariantAttention::pass_keys(int64_t layer, const TensorView& q, const Partial& to) {
  const int rank = ring_.rank(), right = (rank + 1) % size(), left = (rank + size() - 1) % size();
  const int64_t half_bytes = message_elements() * size_of(cache_.shape().dtype);
  const size_t bytes = 2 * half_bytes;
  for (device::Buffer& buffer : travelling_) buffer.reserve(2 * half_bytes);
  pack(layer, travelling_[0].as<std::byte>());

  MergeTree tree(size());
  std::vector<size_t> place(size());  // in waiting_, by the first rank of a result
  std::vector<size_t> free;
  for (size_t i = waiting_.size(); i > 0; --i) free.push_back(i - 1);
  const auto result = [&](int of) {  // the root's place is that of rank 0
    Buffers& buffers = waiting_[place[of]];
    return of == 0 ? to : partial(buffers.out, buffers.lse, q.rows());
  };
  for (int step = 0; step < size(); ++step) {
    const int visitor = parallel::visiting_rank(size(), rank, step);
    device::Buffer& here = travelling_[step % 2];
    std::unique_ptr<comm::Transfer> transfer;
    if (step + 1 < size())
      transfer =
          ring_.start_send_receive({here.as<std::byte>(), bytes}, right,
                                   {travelling_[(step + 1) % 2].as<std::byte>(), bytes}, left);
    if (visitor != 0) {
      place[visitor] = free.back();
      free.pop_back();
    }
    const Keys keys =
        step == 0 ? cached(layer) : Keys{here.data(), here.as<std::byte>() + half_bytes};
    attend_rank(layer, visits_[step], q, keys, result(visitor));
    for (const MergeTree::Merge& ready : tree.arrive(visitor)) {
      merge(result(ready.from), result(ready.into));
      free.push_back(place[ready.from]);
    }
    if (transfer) wait(*transfer, "ring_pass_kv", static_cast<int64_t>(bytes));
  }
}

/// Every rank attends all queries to its own keys and sends each rank's results home, where they
/// are merged.
void InvariantAttention::pass_queries(int64_t layer, const TensorView& q, const Partial& to) {
  const int rank = ring_.rank();
  const int64_t total = all_.count();
  const TensorView queries = all_q_.tensor(DType::fp32, {total, num_heads_, head_dim()});
  comm::Blocks blocks;
  int64_t begin = 0;
  for (int other = 0; other < size(); ++other) {
    blocks.send.push_back(bytes_of(q));
    blocks.receive.push_back(bytes_of(queries.slice_rows(begin, counts_[other])));
    begin += counts_[other];
  }
  const int64_t q_bytes = q.elements() * size_of(DType::fp32);
  wait(*ring_.start_all_to_all(blocks), "all_queries", (size() - 1) * q_bytes);

  const Partial here = partial(all_partial_.out, all_partial_.lse, total);
  attend_rank(layer, visits_[0], queries, cached(layer), here);

  comm::Blocks outs, lses;
  std::vector<Partial> home;  // by rank; the root of the tree where it is wanted
  begin = 0;
  int64_t sent = 0;
  for (int other = 0; other < size(); ++other) {
    home.push_back(other == 0 ? to : partial(waiting_[other].out, waiting_[other].lse, q.rows()));
    outs.send.push_back(bytes_of(here.out.slice_rows(begin, counts_[other])));
    lses.send.push_back(bytes_of(here.lse.slice_rows(begin, counts_[other])));
    outs.receive.push_back(bytes_of(home.back().out));
    lses.receive.push_back(bytes_of(home.back().lse));
    if (other != rank)
      sent += static_cast<int64_t>(outs.send.back().size() + lses.send.back().size());
    begin += counts_[other];
  }
  {
    const ScopedSpan span(recorder_, "partial_outputs", Kind::comm, sent);
    const auto first = ring_.start_all_to_all(outs), second = ring_.start_all_to_all(lses);
    first->wait();
    second->wait();
  }
  MergeTree tree(size());
  for (int other = 0; other < size(); ++other)
    for (const MergeTree::Merge& ready : tree.arrive(other))
      merge(home[ready.from], home[ready.into]);
}

void InvariantAttention::wait(comm::Transfer& transfer, const char* name, int64_t bytes) {
  const ScopedSpan span(recorder_, name, Kind::comm, bytes);
  transfer.wait();
}

RingTraffic InvariantAttention::expected_traffic() const {
  RingTraffic traffic;
  if (size() == 1) return traffic;
  if (keys_travel_) {
    traffic.ring_bytes = (size() - 1) * 2 * message_elements() * size_of(cache_.shape().dtype);
    return traffic;
  }
  const int64_t row_bytes = num_heads_ * head_dim() * size_of(DType::fp32);
  traffic.ring_bytes = (size() - 1) * own_.count() * row_bytes;
  traffic.all_to_all_bytes =
      (all_.count() - own_.count()) * (row_bytes + num_heads_ * size_of(DType::fp32));
  return traffic;
}

}  // namespace pecia::context
