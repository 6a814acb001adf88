// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The journal of memory on demand (demand.hpp): which sequences left the cache, came back to it, or
/// moved inside it. Traces have it. Played from its beginning, it says at any time what is outside.

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pecia::schedule {

enum class YieldKind : uint8_t {
  parked,      ///< its keys left the cache
  returned,    ///< they came back
  forgotten,   ///< its keys were dropped, in the cache or parked
  read_again,  ///< it has slots again, and reads its tokens
  moved,       ///< its keys of an instance go to another, to make room
  scaled_up,   ///< it grew on an instance where it had no slots
  ended        ///< it was outside, and nothing needs it any more
};
/// The word that traces have.
const char* name_of(YieldKind kind);

struct Yield {
  YieldKind kind = YieldKind::parked;
  int64_t sequence = 0;
  int64_t row =
      0;  ///< in the results, of the turn that it is at; of a fork's prefix, the first one
  int64_t tokens = 0;          ///< of its own, cached or parked until then
  int32_t from = -1, to = -1;  ///< instances of a move; of a scale-up the new one
  bool operator==(const Yield&) const = default;
};

/// What the yields since the beginning have left outside the cache.
class OutOfCache {
 public:
  /// Throws InvalidArgument where the yield contradicts those before it.
  void take(const Yield& yield);

  bool is_parked(int64_t sequence) const { return parked_.contains(sequence); }
  bool is_forgotten(int64_t sequence) const { return forgotten_.contains(sequence); }
  int64_t parked() const { return std::ssize(parked_); }
  int64_t forgotten() const { return std::ssize(forgotten_); }

 private:
  std::map<int64_t, int64_t> parked_;  ///< tokens by sequence
  std::set<int64_t> forgotten_;
};

/// Keeps the yields of a scheduler until they are taken.
class YieldJournal {
 public:
  void add(const Yield& yield);
  /// The sequence is parked again before anybody heard that it was to return.
  void take_return_back(int64_t sequence);
  /// Nothing needs the sequence any more, which may be outside.
  void end(int64_t sequence, int64_t row);
  std::vector<Yield> take() { return std::exchange(untaken_, {}); }
  const OutOfCache& outside() const { return outside_; }

 private:
  OutOfCache outside_;
  std::vector<Yield> untaken_;
};

}  // namespace pecia::schedule
