// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/kv_map.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

int64_t tokens_of(const std::vector<StridedRange>& ranges) {
  int64_t tokens = 0;
  for (const StridedRange& range : ranges) tokens += range.count;
  return tokens;
}

/// Extends the last range where the new positions continue it.
void append_range(std::vector<StridedRange>& ranges, GlobalRange added) {
  if (!ranges.empty()) {
    StridedRange& last = ranges.back();
    if (last.stride == 1 && last.begin + last.count == added.begin) {
      last.count += added.size();
      return;
    }
    if (added.size() == 1) {
      if (last.count == 1 && added.begin > last.begin) {
        last.stride = added.begin - last.begin;
        last.count = 2;
        return;
      }
      if (last.count > 1 && last.stride > 1 && last.position(last.count) == added.begin) {
        ++last.count;
        return;
      }
    }
  }
  ranges.push_back({added.begin, added.size(), 1});
}

/// Adds the tokens `run` of `from`.
void append_run(std::vector<StridedRange>& ranges, const std::vector<StridedRange>& from,
                IndexRun run) {
  int64_t before = 0;
  for (const StridedRange& range : from) {
    const int64_t begin = std::max<int64_t>(run.begin - before, 0);
    const int64_t end = std::min(run.begin + run.count - before, range.count);
    before += range.count;
    if (begin >= end) continue;
    if (range.stride == 1)
      append_range(ranges, {range.position(begin), range.position(end)});
    else
      ranges.push_back({range.position(begin), end - begin, range.stride});
  }
}

/// Σ over positions p < end of how many keys of the range are not behind p.
int64_t seen_before(const StridedRange& keys, int64_t end) {
  const int64_t rows = end - keys.begin;  // that see a key
  if (rows <= 0) return 0;
  const int64_t rising = std::min(rows, keys.count * keys.stride);  // the others see them all
  const int64_t whole = rising / keys.stride, rest = rising % keys.stride;
  return keys.stride * (whole * (whole + 1) / 2) + rest * (whole + 1) +
         (rows - rising) * keys.count;
}

}  // namespace

IndexRun indices_between(const StridedRange& range, int64_t begin, int64_t end) {
  const auto first_at_least = [&](int64_t position) {
    const int64_t distance = position - range.begin;
    return distance <= 0 ? 0 : std::min(range.count, (distance + range.stride - 1) / range.stride);
  };
  const int64_t first = first_at_least(begin);
  return {first, std::max<int64_t>(0, first_at_least(end) - first)};
}

std::vector<Stretch> stretches(const std::vector<StridedRange>& positions,
                               const std::vector<SlotRange>& slots) {
  std::vector<Stretch> found;
  auto range = slots.begin();
  int64_t used = 0;  // of that range
  for (const StridedRange& held : positions)
    for (int64_t done = 0; done < held.count;) {
      while (range != slots.end() && used == range->size()) ++range, used = 0;
      PECIA_CHECK(range != slots.end(), "{} tokens more than slots", held.count - done);
      const int64_t count = std::min(held.count - done, range->size() - used);
      found.push_back({range->begin + used, {held.position(done), count, held.stride}});
      done += count;
      used += count;
    }
  return found;
}

namespace {

/// Σ over the rows of how many keys of the range stand before the first that the row sees.
int64_t gone_of(GlobalRange rows, const StridedRange& range, kernels::Window window) {
  const int64_t tokens = window.tokens;
  if (!window.chunked())  // what a row `tokens` further back would see
    return seen_before(range, rows.end - tokens) - seen_before(range, rows.begin - tokens);
  int64_t gone = 0;
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t chunk = window.first_seen(row), end = std::min(rows.end, chunk + tokens);
    gone += (end - row) * indices_between(range, range.begin, chunk).count;
    row = end;
  }
  return gone;
}

}  // namespace

int64_t count_seen(GlobalRange rows, const std::vector<StridedRange>& keys,
                   kernels::Window window) {
  int64_t count = 0;
  for (const StridedRange& range : keys) {
    count += seen_before(range, rows.end) - seen_before(range, rows.begin);
    if (window) count -= gone_of(rows, range, window);
  }
  return count;
}

const KvMap::Sequence& KvMap::at(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  PECIA_CHECK(found != sequences_.end(), "sequence {} is not in the KV map", sequence);
  return found->second;
}

void KvMap::add(SequenceId sequence, const std::vector<int64_t>& reserved,
                std::optional<SequenceId> parent) {
  PECIA_CHECK(!contains(sequence), "sequence {} is in the KV map already", sequence);
  PECIA_CHECK(reserved.size() == total_reserved_.size(),
              "sequence {} reserves on {} of {} instances", sequence, reserved.size(), instances_);
  for (const int64_t tokens : reserved)
    PECIA_CHECK(tokens >= 0 && tokens % virtual_ranks_ == 0,
                "sequence {} reserves {} tokens for {} virtual ranks", sequence, tokens,
                virtual_ranks_);
  Sequence added;
  added.reserved = reserved;
  added.parts.resize(static_cast<size_t>(instances_) * virtual_ranks_);
  if (parent) {
    PECIA_CHECK(!at(*parent).parent, "sequence {} is a child itself and cannot be a parent",
                *parent);
    ++at(*parent).children;
    added.parent = parent;
    added.length = at(*parent).length;
    added.state_holder = at(*parent).state_holder;
  }
  sequences_.emplace(sequence, std::move(added));
  for (int instance = 0; instance < instances_; ++instance)
    total_reserved_[instance] += reserved[instance];
}

void KvMap::remove(SequenceId sequence) {
  const Sequence& removed = at(sequence);
  PECIA_CHECK(removed.children == 0, "sequence {} still has {} children", sequence,
              removed.children);
  if (removed.parent) --at(*removed.parent).children;
  if (removed.parked) count_parked(sequence, -1);
  for (int instance = 0; instance < instances_; ++instance)
    total_reserved_[instance] -= removed.reserved[instance];
  sequences_.erase(sequence);
}

std::vector<SequenceId> KvMap::sequences() const {
  std::vector<SequenceId> all;
  for (const auto& [id, sequence] : sequences_) all.push_back(id);
  std::ranges::sort(all, std::ranges::greater());
  return all;
}

void KvMap::append(const PassSequence& rows, const Team& team, const Placement* placement) {
  Sequence& sequence = at(rows.sequence);
  PECIA_CHECK(rows.first == sequence.length, "sequence {} has {} tokens, the pass begins at {}",
              rows.sequence, sequence.length, rows.first);
  PECIA_CHECK(sequence.children == 0, "sequence {} has children and cannot grow", rows.sequence);
  for (const SequenceId member : lineage(rows.sequence))
    PECIA_CHECK(!is_parked(member), "sequence {} is parked, and {} needs its keys", member,
                rows.sequence);
  if (team.size() < instances_)
    for (const int holder : holders(rows.sequence))
      PECIA_CHECK(team.index_of(holder), "instance {} holds keys of sequence {}, whose team is {}",
                  holder, rows.sequence, team.text());
  sequence.length_before = sequence.length, sequence.holder_before = sequence.state_holder;
  if (rows.count > 0)
    sequence.state_holder =
        team.instances[row_owner(rows, team.workers(), rows.first + rows.count - 1)];
  if (placement != nullptr) return place(sequence, rows, team, *placement);
  for (int index = 0; index < team.workers(); ++index) {
    const int instance = team.instances[index];
    for (int virtual_rank = 0; virtual_rank < virtual_ranks_; ++virtual_rank) {
      Held& held = sequence.parts.at(instance * virtual_ranks_ + virtual_rank);
      for (const GlobalRange& range :
           rows_of(rows, team.workers() * virtual_ranks_, index * virtual_ranks_ + virtual_rank)) {
        append_range(held.ranges, range);
        held.tokens += range.size();
      }
      PECIA_CHECK(held.tokens <= sequence.reserved[instance] / virtual_ranks_,
                  "sequence {} holds {} tokens on instance {}, {} reserved", rows.sequence,
                  held.tokens, instance, sequence.reserved[instance] / virtual_ranks_);
    }
  }
  sequence.length += rows.count;
}

std::vector<TravellingTokens> KvMap::travelling(const PassSequence& rows, const Team& team) const {
  std::vector<TravellingTokens> all;
  for (int index = 0; index < team.size(); ++index) {
    const int instance = team.instances[index];
    TravellingTokens tokens{ranges(rows.sequence, instance), held(rows.sequence, instance), 0};
    for (const GlobalRange& range : rows_of(rows, team, index)) append_range(tokens.ranges, range);
    tokens.count = tokens_of(tokens.ranges);
    all.push_back(std::move(tokens));
  }
  return all;
}

void KvMap::place(Sequence& sequence, const PassSequence& rows, const Team& team,
                  const Placement& placement) {
  PECIA_CHECK(virtual_ranks_ == 1, "tokens of sequence {} are placed, but virtual ranks hold them",
              rows.sequence);
  const std::vector<TravellingTokens> all = travelling(rows, team);
  for (const KeptShare& share : placement.shares) {
    const std::vector<KeptRun> runs = kept_runs(placement, team, all, share.instance);
    Held& held = sequence.parts.at(share.instance);
    for (const KeptRun& kept : runs) append_run(held.ranges, all[kept.source].ranges, kept.run);
    held.tokens += share.tokens;
    PECIA_CHECK(held.tokens <= sequence.reserved[share.instance],
                "sequence {} keeps {} tokens on instance {}, {} reserved", rows.sequence,
                held.tokens, share.instance, sequence.reserved[share.instance]);
  }
  sequence.length += rows.count;
  if (placement.gathers != 0)
    for (int instance = 0; instance < instances_; ++instance) {
      if (placement.has_share(instance)) continue;
      sequence.parts[instance] = {};
      total_reserved_[instance] -= std::exchange(sequence.reserved[instance], 0);
    }
  if (sequence.parts[sequence.state_holder].tokens == 0)
    sequence.state_holder = most_held(rows.sequence);
}

/// The first of the instances that hold most of the sequence's own tokens.
int32_t KvMap::most_held(SequenceId sequence) const {
  int32_t most = 0;
  for (int32_t instance = 1; instance < instances_; ++instance)
    if (held_by(sequence, instance) > held_by(sequence, most)) most = instance;
  return most;
}

void KvMap::shorten(SequenceId sequence, int64_t length) {
  Sequence& shorter = at(sequence);
  PECIA_CHECK(!shorter.parked && shorter.children == 0,
              "sequence {} is parked or has children, and cannot be shortened", sequence);
  const int64_t parents = shorter.parent ? at(*shorter.parent).length : 0;
  PECIA_CHECK(parents <= length && length <= shorter.length,
              "sequence {} of {} tokens, {} of its parent's, is shortened to {}", sequence,
              shorter.length, parents, length);
  for (Held& held : shorter.parts) {
    for (StridedRange& range : held.ranges) {
      range.count = indices_between(range, range.begin, length).count;
      if (range.count == 1) range.stride = 1;
    }
    std::erase_if(held.ranges, [](const StridedRange& range) { return range.count == 0; });
    held.tokens = tokens_of(held.ranges);
  }
  shorter.length = length;
  if (length == shorter.length_before)
    shorter.state_holder = shorter.holder_before;
  else if (length == parents)
    shorter.state_holder =
        shorter.parent ? at(*shorter.parent).state_holder : SequenceState::nobody;
  else
    shorter.state_holder = holder_of(sequence, length - 1);
}

/// The instance that holds this token of the sequence's own.
int32_t KvMap::holder_of(SequenceId sequence, int64_t position) const {
  for (int32_t instance = 0; instance < instances_; ++instance)
    for (int part = 0; part < virtual_ranks_; ++part)
      for (const StridedRange& range : ranges(sequence, instance, part)) {
        const IndexRun found = indices_between(range, position, position + 1);
        if (found.count > 0) return instance;
      }
  PECIA_CHECK(false, "nobody holds token {} of sequence {}", position, sequence);
}

void KvMap::set_reserved(SequenceId sequence, int instance, int64_t tokens) {
  PECIA_CHECK(!is_parked(sequence), "sequence {} is parked", sequence);
  for (int part = 0; part < virtual_ranks_; ++part)
    PECIA_CHECK(
        tokens % virtual_ranks_ == 0 && tokens / virtual_ranks_ >= held(sequence, instance, part),
        "sequence {} holds {} tokens on instance {} and cannot reserve {} of {}", sequence,
        held(sequence, instance, part), instance, tokens, virtual_ranks_);
  int64_t& reserved = at(sequence).reserved.at(instance);
  total_reserved_[instance] += tokens - reserved;
  reserved = tokens;
}

void KvMap::park(SequenceId sequence) {
  Sequence& parked = at(sequence);
  PECIA_CHECK(!parked.parked, "sequence {} is parked already", sequence);
  for (int instance = 0; instance < instances_; ++instance)
    total_reserved_[instance] -= std::exchange(parked.reserved[instance], 0);
  parked.parked = true;
  count_parked(sequence, 1);
}

void KvMap::count_parked(SequenceId sequence, int64_t sign) {
  num_parked_ += sign;
  for (int instance = 0; instance < instances_; ++instance)
    total_parked_[instance] += sign * held_by(sequence, instance);
}

int64_t KvMap::held_by(SequenceId sequence, int instance) const {
  int64_t tokens = 0;
  for (int part = 0; part < virtual_ranks_; ++part) tokens += held(sequence, instance, part);
  return tokens;
}

void KvMap::bring_back(SequenceId sequence, const std::vector<int64_t>& reserved) {
  PECIA_CHECK(at(sequence).parked && reserved.size() == total_reserved_.size(),
              "sequence {} comes back to {} instances", sequence, reserved.size());
  at(sequence).parked = false;
  count_parked(sequence, -1);
  for (int instance = 0; instance < instances_; ++instance)
    set_reserved(sequence, instance, reserved[instance]);
}

SequenceState KvMap::state(SequenceId sequence) const {
  const Sequence& known = at(sequence);
  SequenceState state{known.parent.value_or(SequenceState::no_parent),
                      known.length,
                      known.reserved,
                      {},
                      known.state_holder};
  for (const Held& part : known.parts) state.held.push_back(part.ranges);
  return state;
}

void KvMap::set_state(SequenceId sequence, const SequenceState& state) {
  if (!contains(sequence))
    add(sequence, state.reserved,
        state.parent == SequenceState::no_parent ? std::nullopt : std::optional(state.parent));
  if (state.held.empty()) return;
  Sequence& known = at(sequence);
  PECIA_CHECK(state.held.size() == known.parts.size() &&
                  state.reserved.size() == known.reserved.size() &&
                  known.parent.value_or(SequenceState::no_parent) == state.parent,
              "a state of sequence {} does not fit", sequence);
  known.length = known.length_before = state.length;
  known.state_holder = known.holder_before = state.state_holder;
  for (size_t part = 0; part < known.parts.size(); ++part)
    known.parts[part] = {tokens_of(state.held[part]), state.held[part]};
  if (virtual_ranks_ > 1) return;
  for (int instance = 0; instance < instances_; ++instance)
    set_reserved(sequence, instance, state.reserved[instance]);
}

void KvMap::verify() const {
  std::vector<int64_t> reserved(instances_), parked(instances_);
  for (const auto& [id, sequence] : sequences_)
    for (int instance = 0; instance < instances_; ++instance) {
      reserved[instance] += sequence.reserved[instance];
      if (sequence.parked) parked[instance] += held_by(id, instance);
    }
  PECIA_CHECK(reserved == total_reserved_ && parked == total_parked_,
              "the totals of what is reserved or parked are not those of the sequences");
  for (const auto& [id, sequence] : sequences_) {
    const int64_t first = sequence.parent ? length(*sequence.parent) : 0;
    PECIA_CHECK(sequence.length == first || held_by(id, sequence.state_holder) > 0,
                "instance {} has the state of sequence {}, and holds no keys of it",
                sequence.state_holder, id);
    std::vector<bool> held(sequence.length - first);
    for (int instance = 0; instance < instances_; ++instance) {
      int64_t tokens = 0;
      for (int part = 0; part < virtual_ranks_; ++part)
        for (const StridedRange& range : ranges(id, instance, part))
          for (int64_t i = 0; i < range.count; ++i, ++tokens) {
            const int64_t token = range.position(i) - first;
            PECIA_CHECK(0 <= token && token < std::ssize(held) && !held[token],
                        "position {} of sequence {}, which has {}, is held twice or by nobody's "
                        "right, by instance {}",
                        range.position(i), id, sequence.length, instance);
            held[token] = true;
          }
      PECIA_CHECK(tokens <= sequence.reserved[instance] || sequence.parked,
                  "instance {} holds {} tokens of sequence {}, {} are reserved", instance, tokens,
                  id, sequence.reserved[instance]);
    }
    const auto lost = std::ranges::find(held, false);
    PECIA_CHECK(lost == held.end(), "position {} of sequence {} is held by nobody",
                first + (lost - held.begin()), id);
  }
}

std::vector<int> KvMap::holders(SequenceId sequence) const {
  std::vector<bool> holds(instances_);
  for (const SequenceId member : lineage(sequence)) {
    const std::vector<Held>& parts = at(member).parts;
    for (size_t part = 0; part < parts.size(); ++part)
      if (parts[part].tokens > 0) holds[part / virtual_ranks_] = true;
  }
  std::vector<int> found;
  for (int instance = 0; instance < instances_; ++instance)
    if (holds[instance]) found.push_back(instance);
  return found;
}

Lineage KvMap::lineage(SequenceId sequence) const {
  return Lineage(sequence, at(sequence).parent);
}

}  // namespace pecia::parallel
