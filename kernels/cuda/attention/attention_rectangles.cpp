// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_rectangles.hpp"

#include <algorithm>
#include <limits>

namespace pecia::kernels::cuda {
namespace {

/// Positions [begin, end) of rows or keys next to each other.
struct Positions {
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

struct RowSpan {
  int64_t first_row;
  Positions positions;
};

struct KeySpan {
  int64_t run, first_key;
  Positions positions;
};

/// More would be rectangles too small to be worth a call.
constexpr size_t max_row_spans = 64, max_span_pairs = size_t{1} << 16;

/// Of an item, in the order of its rows. Cut where positions jump, where a chunk ends that rows see
/// together, and after max_rows.
std::vector<RowSpan> consecutive_rows(const AttentionArgs& args, const AttentionItem& item,
                                      int64_t max_rows) {
  std::vector<RowSpan> spans;
  for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row) {
    const int64_t position = args.query_positions[row];
    if (spans.empty() || spans.back().positions.end != position ||
        spans.back().positions.size() == max_rows ||
        (args.window.chunked() && args.window.first_seen(position) == position)) {
      if (spans.size() == max_row_spans) return {};
      spans.push_back({row, {position, position}});
    }
    ++spans.back().positions.end;
  }
  return spans;
}

/// Keys of all runs as one looks at them in memory.
class Memory {
 public:
  explicit Memory(const AttentionArgs& args) : runs_(args.runs), head_dim_(args.q.size(2)) {}

  /// Whether `count` keys after the given one there is the other one, for every head.
  bool follows(int64_t run, int64_t key, int64_t count, int64_t next_run, int64_t next_key) const {
    const KeyRun &a = runs_[run], &b = runs_[next_run];
    return a.head_stride == b.head_stride &&
           a.offset + (key + count) * head_dim_ == b.offset + next_key * head_dim_;
  }

 private:
  std::span<const KeyRun> runs_;
  int64_t head_dim_;
};

/// Of an item, in the order of its runs. Cut where positions jump or memory does, and after
/// max_keys.
std::vector<KeySpan> consecutive_keys(const AttentionArgs& args, const AttentionItem& item,
                                      const Memory& memory, int64_t max_keys) {
  std::vector<KeySpan> spans;
  const auto add = [&](int64_t run, int64_t key, Positions positions) {
    if (!spans.empty() && spans.back().positions.end == positions.begin &&
        spans.back().positions.size() + positions.size() <= max_keys &&
        memory.follows(spans.back().run, spans.back().first_key, spans.back().positions.size(), run,
                       key))
      spans.back().positions.end = positions.end;
    else
      spans.push_back({run, key, positions});
  };
  for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r) {
    const KeyRun& run = args.runs[r];
    const int64_t most = run.stride == 1 ? std::min(run.num_keys, max_keys) : 1;
    for (int64_t key = 0; key < run.num_keys; key += most) {
      if (spans.size() == max_span_pairs) return {};
      const int64_t together = std::min(most, run.num_keys - key);
      add(r, key, {run.position_of(key), run.position_of(key) + together});
    }
  }
  return spans;
}

/// Finds the rectangles of some rows, one span of keys after the other. Rows of one chunk see its
/// keys up to their own, as if there were no others and no window.
class Cutter {
 public:
  Cutter(const RowSpan& rows, Window window, const Memory& memory, int64_t max_keys)
      : rows_(rows),
        first_seen_(window.chunked() ? window.first_seen(rows.positions.begin)
                                     : std::numeric_limits<int64_t>::min()),
        window_(window.chunked() ? 0 : window.tokens),
        memory_(memory),
        max_keys_(max_keys) {}

  void add(KeySpan keys) {
    if (first_seen_ >= keys.positions.end) return;
    if (first_seen_ > keys.positions.begin) {
      keys.first_key += first_seen_ - keys.positions.begin;
      keys.positions.begin = first_seen_;
    }
    const Positions q = rows_.positions, k = keys.positions;
    // Rows among the keys' positions see the keys up to their own.
    const Positions among = {std::max(q.begin, k.begin), std::min(q.end, k.end)};
    if (among.size() > 0) {
      const bool cut = window_ > 0 && among.end - window_ > k.begin;
      const int64_t first = cut ? std::max(k.begin, among.begin - window_ + 1) : k.begin;
      add(among, keys, {first, among.end}, cut ? Mask::band : Mask::causal);
    }
    // Later rows see all of them, or, with a window, lose them one by one.
    const int64_t later = std::max(q.begin, k.end);
    const int64_t losing = window_ > 0 ? std::max(later, k.begin + window_) : q.end;
    add({later, std::min(q.end, losing)}, keys, k, Mask::full);
    if (window_ > 0)
      add({losing, std::min(q.end, k.end - 1 + window_)}, keys, {losing - window_ + 1, k.end},
          Mask::mirror);
  }

  RectangleRows result() && {
    RectangleRows rows = {rows_.first_row, rows_.positions.size(), std::move(rectangles_), {}};
    fold(rows);
    return rows;
  }

 private:
  void add(const Positions& q, const KeySpan& keys, const Positions& k, Mask mask) {
    if (q.size() <= 0) return;
    const Rectangle next = {rows_.first_row + q.begin - rows_.positions.begin,
                            q.size(),
                            keys.run,
                            keys.first_key + k.begin - keys.positions.begin,
                            k.size(),
                            mask,
                            {}};
    if (mask == Mask::full || mask == Mask::causal)
      for (Rectangle& before : rectangles_)
        if (continues(before, next)) {
          before.num_keys += next.num_keys;
          before.mask = mask;
          return;
        }
    rectangles_.push_back(next);
  }

  /// Keys that all rows see, and after them in memory the next: together they are as the next.
  bool continues(const Rectangle& before, const Rectangle& next) const {
    return before.mask == Mask::full && before.first_row == next.first_row &&
           before.num_rows == next.num_rows && before.num_keys + next.num_keys <= max_keys_ &&
           memory_.follows(before.run, before.first_key, before.num_keys, next.run, next.first_key);
  }

  /// Says of every rectangle which rows have a result already, and which rows never get one.
  static void fold(RectangleRows& rows) {
    std::vector<int64_t> bounds = {rows.first_row, rows.first_row + rows.num_rows};
    for (const Rectangle& rectangle : rows.rectangles) {
      bounds.push_back(rectangle.first_row);
      bounds.push_back(rectangle.first_row + rectangle.num_rows);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    std::vector<bool> written(bounds.size() - 1);
    const auto append = [](std::vector<FoldRows>& folds, int64_t begin, int64_t end, Fold how) {
      if (!folds.empty() && folds.back().how == how &&
          folds.back().first_row + folds.back().num_rows == begin)
        folds.back().num_rows += end - begin;
      else
        folds.push_back({begin, end - begin, how});
    };
    for (Rectangle& rectangle : rows.rectangles)
      for (size_t i = 0; i + 1 < bounds.size(); ++i) {
        if (bounds[i] < rectangle.first_row ||
            bounds[i] >= rectangle.first_row + rectangle.num_rows)
          continue;
        append(rectangle.folds, bounds[i], bounds[i + 1], written[i] ? Fold::merge : Fold::write);
        written[i] = true;
      }
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      if (!written[i]) append(rows.unseen, bounds[i], bounds[i + 1], Fold::write);
  }

  const RowSpan& rows_;
  int64_t first_seen_;  ///< of the chunk
  int64_t window_;
  const Memory& memory_;
  int64_t max_keys_;
  std::vector<Rectangle> rectangles_;
};

bool are_worth_it(const std::vector<RectangleRows>& all, int64_t min_pairs) {
  int64_t pairs = 0, rectangles = 0;
  for (const RectangleRows& rows : all)
    for (const Rectangle& rectangle : rows.rectangles) {
      pairs += rectangle.num_rows * rectangle.num_keys;
      ++rectangles;
    }
  return rectangles > 0 && pairs / rectangles >= min_pairs;
}

}  // namespace

std::string_view name_of(Mask mask) {
  switch (mask) {
    case Mask::full:
      return "full";
    case Mask::causal:
      return "causal";
    case Mask::band:
      return "band";
    case Mask::mirror:
      return "mirror";
  }
  return "";
}

std::optional<std::vector<RectangleRows>> cut_rectangles(const AttentionArgs& args,
                                                         const AttentionItem& item,
                                                         const RectangleLimits& limits) {
  if (item.num_rows < limits.min_rows) return std::nullopt;
  const Memory memory(args);
  const std::vector<RowSpan> row_spans = consecutive_rows(args, item, limits.max_rows);
  if (row_spans.empty()) return std::nullopt;
  const std::vector<KeySpan> key_spans = consecutive_keys(args, item, memory, limits.max_keys);
  if (row_spans.size() * key_spans.size() > max_span_pairs) return std::nullopt;

  std::vector<RectangleRows> all;
  for (const RowSpan& rows : row_spans) {
    Cutter cutter(rows, args.window, memory, limits.max_keys);
    for (const KeySpan& keys : key_spans) cutter.add(keys);
    all.push_back(std::move(cutter).result());
  }
  if (!are_worth_it(all, limits.min_pairs)) return std::nullopt;
  return all;
}

}  // namespace pecia::kernels::cuda
