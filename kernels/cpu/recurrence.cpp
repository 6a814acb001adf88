// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Columns of a state do not depend on each other, so a task has some columns of one head, which lie
/// together in its first-level cache, and takes in row after row. A row costs one pass over them: while
/// they change for a row, what the next row's key reads is summed too. Four operations an element, or
/// three where nothing is corrected.
template <bool corrects>
class Columns {
  static constexpr hn::ScalableTag<float> d{};
  using V = hn::Vec<decltype(d)>;
  static constexpr int64_t lanes = hn::MaxLanes(d);
  static constexpr int vectors = lanes >= 16 ? 4 : 2;  // what registers hold of three sums

 public:
  static constexpr int64_t width = vectors * lanes;

  Columns(const RecurrenceArgs& args, int64_t head, int64_t first, float* tile)
      : args_(args),
        head_(head),
        key_head_(head * args.key_heads() / args.heads()),
        first_(first),
        count_(std::min(width, args.value_dim() - first)),
        tile_(tile) {}

  void run(const StateRows& item) {
    if (item.num_rows == 0) return;
    float* state = static_cast<float*>(args_.states.row(item.state)) +
                   head_ * key_dim() * args_.value_dim() + first_;
    load(state);
    const int64_t end = item.first_row + item.num_rows;
    if constexpr (corrects) read_first(key(item.first_row));
    for (int64_t row = item.first_row; row < end; ++row)
      take_in(row, row + 1 < end ? key(row + 1) : nullptr);
    store(state);
  }

 private:
  int64_t key_dim() const { return args_.key_dim(); }
  const float* key(int64_t row) const {
    return static_cast<const float*>(args_.k.row(row)) + key_head_ * key_dim();
  }
  static float of(const TensorView& x, int64_t row, int64_t column) {
    return static_cast<const float*>(x.row(row))[column];
  }

  void load(const float* state) {
    for (int64_t i = 0; i < key_dim(); ++i) {
      const float* row = state + i * args_.value_dim();
      std::copy_n(row, count_, tile_ + i * width);
      std::fill(tile_ + i * width + count_, tile_ + (i + 1) * width, 0.0f);
    }
  }
  void store(float* state) const {
    for (int64_t i = 0; i < key_dim(); ++i)
      std::copy_n(tile_ + i * width, count_, state + i * args_.value_dim());
  }

  HWY_INLINE void read_first(const float* k) {
    V sums[vectors];
    for (V& sum : sums) sum = hn::Zero(d);
    for (int64_t i = 0; i < key_dim(); ++i)
      for (int n = 0; n < vectors; ++n)
        sums[n] = hn::MulAdd(hn::Set(d, k[i]), hn::Load(d, tile_ + i * width + n * lanes), sums[n]);
    for (int n = 0; n < vectors; ++n) hn::Store(sums[n], d, read_ + n * lanes);
  }

  /// `next`: the next row's key, or null.
  HWY_INLINE void take_in(int64_t row, const float* next) {
    const float decay = std::exp(of(args_.decay, row, head_));
    const V strength = hn::Set(d, of(args_.strength, row, head_));
    HWY_ALIGN float values[width] = {};
    if (args_.v)
      std::copy_n(static_cast<const float*>(args_.v.row(row)) + head_ * args_.value_dim() + first_,
                  count_, values);
    V changes[vectors], results[vectors];
    for (int n = 0; n < vectors; ++n) {
      V value = hn::Load(d, values + n * lanes);
      if constexpr (corrects)
        value = hn::NegMulAdd(hn::Set(d, decay), hn::Load(d, read_ + n * lanes), value);
      changes[n] = hn::Mul(strength, value);
      results[n] = args_.skip ? hn::Mul(hn::Set(d, args_.skip.template as<float>()[head_]),
                                        hn::Load(d, values + n * lanes))
                              : hn::Zero(d);
    }
    const float* k = key(row);
    const float* q =
        args_.out ? static_cast<const float*>(args_.q.row(row)) + key_head_ * key_dim() : k;
    if (corrects && next != nullptr)
      pass<true>(decay, k, q, next, changes, results);
    else
      pass<false>(decay, k, q, k, changes, results);
    if (args_.out)
      std::copy_n(result_, count_,
                  static_cast<float*>(args_.out.row(row)) + head_ * args_.value_dim() + first_);
  }

  /// Adds what the query reads to `results`.
  template <bool reads>
  HWY_INLINE void pass(float decay, const float* k, const float* q, const float* next,
                       const V* changes, V* results) {
    V sums[vectors];
    for (V& sum : sums) sum = hn::Zero(d);
    const V kept = hn::Set(d, decay);
    for (int64_t i = 0; i < key_dim(); ++i) {
      const V key = hn::Set(d, k[i]), query = hn::Set(d, q[i]), coming = hn::Set(d, next[i]);
      for (int n = 0; n < vectors; ++n) {
        float* at = tile_ + i * width + n * lanes;
        const V element = hn::MulAdd(key, changes[n], hn::Mul(kept, hn::Load(d, at)));
        hn::Store(element, d, at);
        results[n] = hn::MulAdd(query, element, results[n]);
        if constexpr (reads) sums[n] = hn::MulAdd(coming, element, sums[n]);
      }
    }
    for (int n = 0; n < vectors; ++n) {
      hn::Store(results[n], d, result_ + n * lanes);
      if constexpr (reads) hn::Store(sums[n], d, read_ + n * lanes);
    }
  }

  const RecurrenceArgs& args_;
  int64_t head_, key_head_, first_, count_;
  float* tile_;                       ///< [key_dim, width]
  HWY_ALIGN float read_[width] = {};  ///< what the next row's key reads, before the decay
  HWY_ALIGN float result_[width] = {};
};

template <bool corrects>
HWY_INLINE void run_columns(const RecurrenceArgs& args, const StateRows& item, int64_t head,
                            int64_t block, float* tile) {
  Columns<corrects>(args, head, block * Columns<corrects>::width, tile).run(item);
}

int64_t BlockWidth() {
  return Columns<true>::width;
}

/// Vectors of a block.
int64_t BlockVectors() {
  constexpr hn::ScalableTag<float> d;
  return Columns<true>::width / hn::MaxLanes(d);
}

void RunColumns(const RecurrenceArgs& args, const StateRows& item, int64_t head, int64_t block,
                float* tile) {
  if (args.corrects)
    run_columns<true>(args, item, head, block, tile);
  else
    run_columns<false>(args, item, head, block, tile);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(BlockWidth);
HWY_EXPORT(BlockVectors);
HWY_EXPORT(RunColumns);

void recurrence(const RecurrenceArgs& args, const device::Stream& stream, Workspace& workspace) {
  const int64_t width = HWY_DYNAMIC_DISPATCH(BlockWidth)();
  const int64_t blocks = (args.value_dim() + width - 1) / width;
  const int64_t of_item = args.heads() * blocks;
  const int64_t tile = args.key_dim() * width;
  workspace.reserve_threads(stream.num_threads(), Carver::bytes_of<float>(tile));
  for_each_task(stream, static_cast<int64_t>(args.items.size()) * of_item,
                [&](int64_t task, const Worker& worker) {
                  const int64_t part = task % of_item;
                  HWY_DYNAMIC_DISPATCH(RunColumns)
                  (args, args.items[task / of_item], part / blocks, part % blocks,
                   workspace.of_thread(worker.thread).take<float>(tile));
                });
}

/// Four operations for each vector of a block and a row, two in a cycle.
RecurrencePace recurrence_pace(int64_t key_dim, int64_t value_dim, int num_threads) {
  constexpr double usual_hz = 2.5e9;
  const int64_t width = HWY_DYNAMIC_DISPATCH(BlockWidth)();
  const int64_t blocks = (value_dim + width - 1) / width;
  const auto cycles = static_cast<double>(2 * key_dim * HWY_DYNAMIC_DISPATCH(BlockVectors)());
  return {cycles / usual_hz, static_cast<double>(num_threads) / static_cast<double>(blocks)};
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
