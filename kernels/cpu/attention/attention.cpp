// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "kernels/cpu/attention/row_attention.hpp"
#include "kernels/cpu/attention/strip_attention.hpp"
#include "kernels/cpu/attention/wide_attention.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/merge.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

/// The partial results of tiles whose keys were split: [rows of a tile × group, value_dim] and their
/// lse.
class Partials {
 public:
  Partials(const AttentionArgs& args, const AttentionPlan& plan, Workspace& workspace)
      : rows_(plan.tile_rows() * (args.q.size(1) / args.num_kv_heads)),
        value_dim_(args.out.size(2)) {
    const int64_t rows = rows_ * plan.num_partials();
    workspace.reserve_shared(Carver::bytes_of<float>(rows * value_dim_) +
                             Carver::bytes_of<float>(rows));
    Carver carver = workspace.shared();
    out_ = carver.take<float>(rows * value_dim_);
    lse_ = carver.take<float>(rows);
  }

  float* out(int64_t partial) const { return out_ + partial * rows_ * value_dim_; }
  float* lse(int64_t partial) const { return lse_ + partial * rows_; }

 private:
  int64_t rows_, value_dim_;
  float* out_;
  float* lse_;
};

Destination result_of(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head) {
  const int64_t value_dim = args.out.size(2), heads = args.q.size(1);
  const int64_t first_head = kv_head * (heads / args.num_kv_heads);
  return {static_cast<float*>(args.out.row(tile.first_row)) + first_head * value_dim,
          static_cast<float*>(args.lse.row(tile.first_row)) + first_head, heads * value_dim, heads};
}

/// Σ_p exp(lse_p − lse) · out_p of one query and head, over the parts of its tile.
void merge_row(const Partials& partials, int64_t first, int64_t num_parts, int64_t row,
               int64_t value_dim, float* out, float& lse) {
  float maximum = empty_lse;
  for (int64_t p = first; p < first + num_parts; ++p)
    maximum = std::max(maximum, partials.lse(p)[row]);
  std::fill_n(out, value_dim, 0.0f);
  if (maximum == empty_lse)
    maximum = 0;  // so that empty parts weigh 0, and NaN is not taken for one
  float sum = 0;
  for (int64_t p = first; p < first + num_parts; ++p)
    sum += std::exp(partials.lse(p)[row] - maximum);
  lse = sum == 0 ? empty_lse : maximum + std::log(sum);
  if (sum == 0) return;
  for (int64_t p = first; p < first + num_parts; ++p) {
    const float weight = std::exp(partials.lse(p)[row] - maximum) / sum;
    const float* part = partials.out(p) + row * value_dim;
    for (int64_t i = 0; i < value_dim; ++i) out[i] += weight * part[i];
  }
}

void merge_tile(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                const Partials& partials) {
  const int64_t value_dim = args.out.size(2), group = args.q.size(1) / args.num_kv_heads;
  const Destination to = result_of(args, tile, kv_head);
  for (int64_t t = 0; t < tile.num_rows; ++t)
    for (int64_t g = 0; g < group; ++g)
      merge_row(partials, tile.partial(kv_head, 0), tile.num_parts, t * group + g, value_dim,
                to.out + t * to.row_stride + g * value_dim, to.lse[t * to.lse_stride + g]);
}

/// Blocks [begin, end) of an item against the rows of a tile, up to key `key_end`.
struct Blocks {
  int64_t item, begin, end, key_end;
};

BlockWalk walk_through(const AttentionArgs& args, const Blocks& blocks) {
  return {args, args.items[blocks.item], blocks.begin,
          std::min(blocks.end * block_keys, blocks.key_end)};
}

/// `after` is the block that is read after these, if it is known.
template <class Work>
void add_blocks(Work& work, const AttentionArgs& args, const QueryTile& tile, const Blocks& blocks,
                const std::optional<KeyBlock>& after, const Worker& worker) {
  if (blocks.begin >= blocks.end) return;
  BlockWalk walk = walk_through(args, blocks);
  KeyBlock block = walk.next();
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const std::optional<KeyBlock> next = b + 1 < blocks.end ? walk.next() : after;
    const Sight sight = tile.sight(block, args.window);
    if (sight != Sight::none) {
      work.add(block, next, sight);
      worker.poll();
    }
    if (next) block = *next;
  }
}

/// The blocks of an item that some row of the tile sees.
Blocks seen_blocks(const AttentionArgs& args, const QueryTile& tile, int64_t item) {
  const KeyRange seen =
      seen_keys(runs_of(args, args.items[item]), tile.min_position, tile.max_position, args.window);
  return {item, seen.begin / block_keys, (seen.end + block_keys - 1) / block_keys, seen.end};
}

/// The items whose results are merged, one after the other. A result waits for its sibling in the
/// tree, so there is at most one for each level.
template <class Work>
void attend_merged(Work& work, const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                   Carver scratch, const Worker& worker) {
  const int64_t group = args.q.size(1) / args.num_kv_heads, value_dim = args.out.size(2);
  const int64_t rows = tile.num_rows * group;
  const int levels = std::bit_width(static_cast<unsigned>(args.merged));
  std::array<PartOfRows, std::numeric_limits<int>::digits> waiting;
  for (PartOfRows& part : std::span(waiting).first(levels))
    part = {scratch.take<float>(rows * value_dim), scratch.take<float>(rows)};
  size_t count = 0;
  Blocks blocks = seen_blocks(args, tile, tile.item);
  for (int leaf = 0; leaf < args.merged; ++leaf) {
    const Blocks coming =
        leaf + 1 < args.merged ? seen_blocks(args, tile, tile.item + leaf + 1) : Blocks{};
    std::optional<KeyBlock> after;
    if (coming.begin < coming.end) after = walk_through(args, coming).next();
    if (leaf > 0) work.begin();
    add_blocks(work, args, tile, blocks, after, worker);
    blocks = coming;
    work.write({waiting[count].out, waiting[count].lse, group * value_dim, group});
    ++count;
    for (int done = leaf; done % 2 == 1; done /= 2, --count)
      merge_parts(waiting[count - 2], waiting[count - 1], rows, value_dim);
  }
  const Destination to = result_of(args, tile, kv_head);
  for (int64_t t = 0; t < tile.num_rows; ++t) {
    std::copy_n(waiting[0].out + t * group * value_dim, group * value_dim,
                to.out + t * to.row_stride);
    std::copy_n(waiting[0].lse + t * group, group, to.lse + t * to.lse_stride);
  }
}

int64_t merged_scratch_bytes(const AttentionArgs& args, int64_t tile_rows) {
  if (args.merged == 1) return 0;
  const int64_t rows = tile_rows * (args.q.size(1) / args.num_kv_heads);
  return std::bit_width(static_cast<unsigned>(args.merged)) *
         (Carver::bytes_of<float>(rows * args.out.size(2)) + Carver::bytes_of<float>(rows));
}

/// How the tasks of a call with products in fp32 are done.
struct InFp32 {
  int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows) const {
    return WideAttention::scratch_bytes(args, tile_rows);
  }
  template <class Run>
  void run(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head, Carver& scratch,
           const Run& task) const {
    WideAttention work(args, tile, kv_head, scratch);
    task(work);
  }
};

/// The same with products in bf16.
struct InBf16 {
  const Bf16Kernel& kernel;

  bool takes_rows(const AttentionArgs& args, int64_t tile_rows) const {
    const int64_t rows = tile_rows * (args.q.size(1) / args.num_kv_heads);
    if (rows > RowAttention::most_rows) return false;
    return args.row_invariant == RowInvariant::no ||
           (kernel.bits_of_few_rows && args.kv_dtype == DType::bf16);
  }
  int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows) const {
    return std::max(RowAttention::scratch_bytes(args, tile_rows),
                    StripAttention::scratch_bytes(args, tile_rows));
  }
  template <class Run>
  void run(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head, Carver& scratch,
           const Run& task) const {
    if (takes_rows(args, tile.num_rows)) {
      RowAttention work(args, tile, kv_head, scratch);
      task(work);
    } else {
      StripAttention work(args, tile, kv_head, *kernel.strips, scratch);
      task(work);
    }
  }
};

template <class Way>
void attend(const Way& way, const AttentionArgs& args, const device::Stream& stream,
            Workspace& workspace, AttentionPlan& plan) {
  plan.make(args);
  const int64_t value_dim = args.out.size(2), group = args.q.size(1) / args.num_kv_heads;
  const Partials partials(args, plan, workspace);
  workspace.reserve_threads(stream.num_threads(), way.scratch_bytes(args, plan.tile_rows()) +
                                                      merged_scratch_bytes(args, plan.tile_rows()));

  const bool continues = args.from == AttentionFrom::result;
  const auto num_tasks = static_cast<int64_t>(plan.tasks().size());
  for_each_task(stream, num_tasks, [&](int64_t index, const Worker& worker) {
    const AttentionTask& task = plan.tasks()[index];
    const QueryTile& tile = plan.tiles()[task.tile];
    if (continues && tile.block_begin == tile.block_end) return;
    Carver scratch = workspace.of_thread(worker.thread);
    way.run(args, tile, task.kv_head, scratch, [&](auto& work) {
      if (args.merged > 1) return attend_merged(work, args, tile, task.kv_head, scratch, worker);
      if (continues && task.part == 0) work.begin_with(result_of(args, tile, task.kv_head));
      add_blocks(
          work, args, tile,
          {tile.item, tile.part_begin(task.part), tile.part_begin(task.part + 1), tile.key_end},
          std::nullopt, worker);
      const int64_t partial = tile.partial(task.kv_head, task.part);
      work.write(tile.num_parts == 1 ? result_of(args, tile, task.kv_head)
                                     : Destination{partials.out(partial), partials.lse(partial),
                                                   group * value_dim, group});
    });
  });

  const auto num_tiles = static_cast<int64_t>(plan.tiles().size());
  if (plan.num_partials() == 0) return;
  for_each_range(stream, num_tiles * args.num_kv_heads, 1, [&](int64_t begin, int64_t) {
    const QueryTile& tile = plan.tiles()[begin / args.num_kv_heads];
    if (tile.num_parts > 1) merge_tile(args, tile, begin % args.num_kv_heads, partials);
  });
}

}  // namespace

void attention(const AttentionArgs& args, const device::Stream& stream, Workspace& workspace,
               AttentionPlan& plan) {
  attend(InFp32{}, args, stream, workspace, plan);
}

void attention_bf16(const Bf16Kernel& kernel, const AttentionArgs& args,
                    const device::Stream& stream, Workspace& workspace, AttentionPlan& plan) {
  attend(InBf16{kernel}, args, stream, workspace, plan);
}

}  // namespace pecia::kernels::cpu
