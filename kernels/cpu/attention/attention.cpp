// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "kernels/cpu/attention/attention_products.hpp"
#include "kernels/cpu/attention/softmax.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/merge.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Where a task's result goes: rows of the call's output, or a partial to be merged.
struct Destination {
  float* out;  ///< of query t and head g of the group at t · row_stride + g · head_dim
  float* lse;  ///< … at t · lse_stride + g
  int64_t row_stride, lse_stride;
};

/// Keys and values of a block where the products can read them: in place, or copied together.
struct StagedKeys {
  const char *k, *v;
  const float *k_scales, *v_scales;  ///< [keys], or null
};

/// Of attention with this kernel; null: of products in fp32.
int64_t queries_at_a_time(const Bf16Kernel* kernel, int64_t group) {
  return cpu::queries_at_a_time(group, kernel != nullptr ? kernel->row_unit : 1);
}

TileShape shape_of(const AttentionArgs& args, int64_t tile_rows, const Bf16Kernel* kernel) {
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  return {tile_rows * group,
          args.q.size(2),
          std::min(tile_rows, queries_at_a_time(kernel, group)) * group,
          args.kv_dtype,
          kernel,
          args.row_invariant == RowInvariant::yes};
}

/// One task's matrices, in its thread's scratch memory.
template <typename Products>
class TileAttention {
 public:
  static int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows,
                               const Bf16Kernel* kernel) {
    const TileShape shape = shape_of(args, tile_rows, kernel);
    const int64_t head_dim = shape.head_dim, rows = shape.rows;
    return Products::scratch_bytes(shape) + Carver::bytes_of<float>(rows * head_dim) +
           Carver::bytes_of<float>(shape.most_rows * block_keys) +
           2 * Carver::bytes_of<float>(rows) + Carver::bytes_of<float>(block_keys) +
           2 * Carver::bytes_of<char>(block_keys * head_dim * size_of(args.kv_dtype)) +
           Carver::bytes_of<int64_t>(block_keys) + 2 * Carver::bytes_of<float>(block_keys);
  }

  TileAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                const Bf16Kernel* kernel, Carver scratch)
      : args_(args),
        tile_(tile),
        kv_head_(kv_head),
        group_(args.q.size(1) / args.num_kv_heads),
        rows_(tile.num_rows * group_),
        head_dim_(args.q.size(2)),
        row_bytes_(head_dim_ * size_of(args.kv_dtype)),
        queries_at_a_time_(queries_at_a_time(kernel, group_)),
        products_(shape_of(args, tile.num_rows, kernel), scratch),
        out_(scratch.take<float>(rows_ * head_dim_)),
        scores_(
            scratch.take<float>(std::min(tile.num_rows, queries_at_a_time_) * group_ * block_keys)),
        maxima_(scratch.take<float>(rows_)),
        sums_(scratch.take<float>(rows_)),
        mask_(scratch.take<float>(block_keys)),
        staged_k_(scratch.take<char>(block_keys * row_bytes_)),
        staged_v_(scratch.take<char>(block_keys * row_bytes_)),
        positions_(scratch.take<int64_t>(block_keys)),
        staged_k_scales_(scratch.take<float>(block_keys)),
        staged_v_scales_(scratch.take<float>(block_keys)) {
    const DType dtype = args.q.dtype();
    for (int64_t t = 0; t < tile.num_rows; ++t)
      products_.set_queries(static_cast<const char*>(args.q.row(tile.first_row + t)) +
                                kv_head * group_ * head_dim_ * size_of(dtype),
                            dtype, args.scale, t * group_, group_);
    begin();
  }

  /// Begins with no keys.
  void begin() {
    std::fill_n(out_, rows_ * head_dim_, 0.0f);
    std::fill_n(maxima_, rows_, empty_lse);
    std::fill_n(sums_, rows_, 0.0f);
  }

  /// Begins with a result over other keys, as `write` writes it.
  void begin_with(const Destination& result) {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t t = r / group_, g = r % group_;
      std::copy_n(result.out + t * result.row_stride + g * head_dim_, head_dim_,
                  out_ + r * head_dim_);
      maxima_[r] = result.lse[t * result.lse_stride + g];
      sums_[r] = maxima_[r] == empty_lse ? 0.0f : 1.0f;
    }
  }

  /// `next` is read after the block, and is asked for meanwhile.
  void add(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight) {
    const StagedKeys keys = stage(block);
    products_.set_block(keys.k, keys.v, block.num_keys, bytes_between(block, next));
    if (sight == Sight::some) find_positions(block);
    const int64_t step = queries_at_a_time_;
    for (int64_t query = 0; query < tile_.num_rows; query += step) {
      const int64_t queries = std::min(step, tile_.num_rows - query);
      const int64_t num_keys = sight == Sight::some
                                   ? keys_up_to_last_seen(query, queries, block.num_keys)
                                   : block.num_keys;
      if (num_keys == 0) continue;
      const TileRows rows{query * group_, queries * group_};
      const ScoreBlock scores{scores_, block_keys, rows.count, num_keys};
      float* const out = out_ + rows.first * head_dim_;
      products_.multiply_keys(rows, num_keys, scores_);
      if (keys.k_scales) scale_columns(scores, keys.k_scales);
      if (sight == Sight::some)
        mask_scores(scores, group_, args_.query_positions.data() + tile_.first_row + query,
                    positions_, args_.window, mask_);
      products_.add_values(scores,
                           {maxima_ + rows.first, sums_ + rows.first, out, head_dim_, head_dim_},
                           keys.v_scales);
    }
  }

  void write(const Destination& to) const {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t t = r / group_, g = r % group_;
      const bool empty = sums_[r] == 0.0f;
      scale_row(out_ + r * head_dim_, empty ? 0.0f : 1.0f / sums_[r], head_dim_,
                to.out + t * to.row_stride + g * head_dim_);
      to.lse[t * to.lse_stride + g] = empty ? empty_lse : maxima_[r] + std::log(sums_[r]);
    }
  }

 private:
  /// Of k, v and their scales.
  int64_t element_of(const KeyRun& run, int64_t offset) const {
    return run.offset + kv_head_ * run.head_stride + offset * head_dim_;
  }

  /// Where nothing is known to follow, or in another place than where a copy was made, the keys after
  /// the block's may.
  int64_t bytes_between(const KeyBlock& block, const std::optional<KeyBlock>& next) const {
    if (!next || !block.in_place) return block_keys * row_bytes_;
    return (element_of(args_.runs[next->run], next->offset) -
            element_of(args_.runs[block.run], block.offset)) *
           size_of(args_.kv_dtype);
  }

  StagedKeys stage(const KeyBlock& block) {
    const auto at = [&](const void* base, int64_t element) {
      return static_cast<const char*>(base) + element * size_of(args_.kv_dtype);
    };
    const StoredKeys& all = args_.keys;
    const bool scaled = args_.kv_dtype == DType::fp8;
    if (block.in_place) {
      const int64_t first = element_of(args_.runs[block.run], block.offset);
      return {at(all.k, first), at(all.v, first),
              scaled ? all.k_scales + first / head_dim_ : nullptr,
              scaled ? all.v_scales + first / head_dim_ : nullptr};
    }
    int64_t done = 0;
    for_each_piece(args_, block, [&](const KeyRun& run, int64_t offset, int64_t count) {
      const int64_t first = element_of(run, offset);
      std::memcpy(staged_k_ + done * row_bytes_, at(all.k, first), count * row_bytes_);
      std::memcpy(staged_v_ + done * row_bytes_, at(all.v, first), count * row_bytes_);
      if (scaled) {
        std::copy_n(all.k_scales + first / head_dim_, count, staged_k_scales_ + done);
        std::copy_n(all.v_scales + first / head_dim_, count, staged_v_scales_ + done);
      }
      done += count;
    });
    return {staged_k_, staged_v_, scaled ? staged_k_scales_ : nullptr,
            scaled ? staged_v_scales_ : nullptr};
  }

  /// Keys of the block after which some queries see none, in whole vectors and tiles: they weigh 0.
  int64_t keys_up_to_last_seen(int64_t first_query, int64_t num_queries, int64_t num_keys) const {
    constexpr int64_t unit = 32;
    const auto positions =
        args_.query_positions.subspan(tile_.first_row + first_query, num_queries);
    const int64_t last = *std::max_element(positions.begin(), positions.end());
    int64_t count = num_keys;
    while (count > 0 && positions_[count - 1] > last) --count;
    return std::min(num_keys, (count + unit - 1) / unit * unit);
  }

  void find_positions(const KeyBlock& block) {
    int64_t* to = positions_;
    for_each_piece(args_, block, [&](const KeyRun& run, int64_t offset, int64_t count) {
      for (int64_t s = offset; s < offset + count; ++s) *to++ = run.position_of(s);
    });
  }

  const AttentionArgs& args_;
  const QueryTile& tile_;
  const int64_t kv_head_, group_, rows_, head_dim_, row_bytes_, queries_at_a_time_;
  Products products_;
  float* const out_;     ///< [rows, head_dim], to be divided by sums
  float* const scores_;  ///< [rows at a time, block_keys]
  float* const maxima_;  ///< [rows]
  float* const sums_;    ///< [rows]
  float* const mask_;    ///< [block_keys]
  char* const staged_k_;
  char* const staged_v_;
  int64_t* const positions_;  ///< of the block's keys, where some are not seen
  float* const staged_k_scales_;
  float* const staged_v_scales_;
};

/// The partial results of tiles whose keys were split: [rows of a tile × group, head_dim] and their
/// lse.
class Partials {
 public:
  Partials(const AttentionArgs& args, const AttentionPlan& plan, Workspace& workspace)
      : rows_(plan.tile_rows() * (args.q.size(1) / args.num_kv_heads)), head_dim_(args.q.size(2)) {
    const int64_t rows = rows_ * plan.num_partials();
    workspace.reserve_shared(Carver::bytes_of<float>(rows * head_dim_) +
                             Carver::bytes_of<float>(rows));
    Carver carver = workspace.shared();
    out_ = carver.take<float>(rows * head_dim_);
    lse_ = carver.take<float>(rows);
  }

  float* out(int64_t partial) const { return out_ + partial * rows_ * head_dim_; }
  float* lse(int64_t partial) const { return lse_ + partial * rows_; }

 private:
  int64_t rows_, head_dim_;
  float* out_;
  float* lse_;
};

Destination result_of(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head) {
  const int64_t head_dim = args.q.size(2), heads = args.q.size(1);
  const int64_t first_head = kv_head * (heads / args.num_kv_heads);
  return {static_cast<float*>(args.out.row(tile.first_row)) + first_head * head_dim,
          static_cast<float*>(args.lse.row(tile.first_row)) + first_head, heads * head_dim, heads};
}

/// Σ_p exp(lse_p − lse) · out_p of one query and head, over the parts of its tile.
void merge_row(const Partials& partials, int64_t first, int64_t num_parts, int64_t row,
               int64_t head_dim, float* out, float& lse) {
  float maximum = empty_lse;
  for (int64_t p = first; p < first + num_parts; ++p)
    maximum = std::max(maximum, partials.lse(p)[row]);
  std::fill_n(out, head_dim, 0.0f);
  if (maximum == empty_lse)
    maximum = 0;  // so that empty parts weigh 0, and NaN is not taken for one
  float sum = 0;
  for (int64_t p = first; p < first + num_parts; ++p)
    sum += std::exp(partials.lse(p)[row] - maximum);
  lse = sum == 0 ? empty_lse : maximum + std::log(sum);
  if (sum == 0) return;
  for (int64_t p = first; p < first + num_parts; ++p) {
    const float weight = std::exp(partials.lse(p)[row] - maximum) / sum;
    const float* part = partials.out(p) + row * head_dim;
    for (int64_t i = 0; i < head_dim; ++i) out[i] += weight * part[i];
  }
}

void merge_tile(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                const Partials& partials) {
  const int64_t head_dim = args.q.size(2), group = args.q.size(1) / args.num_kv_heads;
  const Destination to = result_of(args, tile, kv_head);
  for (int64_t t = 0; t < tile.num_rows; ++t)
    for (int64_t g = 0; g < group; ++g)
      merge_row(partials, tile.partial(kv_head, 0), tile.num_parts, t * group + g, head_dim,
                to.out + t * to.row_stride + g * head_dim, to.lse[t * to.lse_stride + g]);
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
template <typename Products>
void add_blocks(TileAttention<Products>& work, const AttentionArgs& args, const QueryTile& tile,
                const Blocks& blocks, const std::optional<KeyBlock>& after, const Worker& worker) {
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
template <typename Products>
void attend_merged(TileAttention<Products>& work, const AttentionArgs& args, const QueryTile& tile,
                   int64_t kv_head, Carver scratch, const Worker& worker) {
  const int64_t group = args.q.size(1) / args.num_kv_heads, head_dim = args.q.size(2);
  const int64_t rows = tile.num_rows * group;
  const int levels = std::bit_width(static_cast<unsigned>(args.merged));
  std::array<PartOfRows, std::numeric_limits<int>::digits> waiting;
  for (PartOfRows& part : std::span(waiting).first(levels))
    part = {scratch.take<float>(rows * head_dim), scratch.take<float>(rows)};
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
    work.write({waiting[count].out, waiting[count].lse, group * head_dim, group});
    ++count;
    for (int done = leaf; done % 2 == 1; done /= 2, --count)
      merge_parts(waiting[count - 2], waiting[count - 1], rows, head_dim);
  }
  const Destination to = result_of(args, tile, kv_head);
  for (int64_t t = 0; t < tile.num_rows; ++t) {
    std::copy_n(waiting[0].out + t * group * head_dim, group * head_dim,
                to.out + t * to.row_stride);
    std::copy_n(waiting[0].lse + t * group, group, to.lse + t * to.lse_stride);
  }
}

int64_t merged_scratch_bytes(const AttentionArgs& args, int64_t tile_rows) {
  if (args.merged == 1) return 0;
  const int64_t rows = tile_rows * (args.q.size(1) / args.num_kv_heads);
  return std::bit_width(static_cast<unsigned>(args.merged)) *
         (Carver::bytes_of<float>(rows * args.q.size(2)) + Carver::bytes_of<float>(rows));
}

/// `kernel`: of Bf16Products, else null.
template <typename Products>
void attend(const Bf16Kernel* kernel, const AttentionArgs& args, const device::Stream& stream,
            Workspace& workspace, AttentionPlan& plan) {
  plan.make(args);
  const int64_t head_dim = args.q.size(2), group = args.q.size(1) / args.num_kv_heads;
  const Partials partials(args, plan, workspace);
  const int64_t tile_bytes = TileAttention<Products>::scratch_bytes(args, plan.tile_rows(), kernel);
  workspace.reserve_threads(stream.num_threads(),
                            tile_bytes + merged_scratch_bytes(args, plan.tile_rows()));

  const bool continues = args.from == AttentionFrom::result;
  const auto num_tasks = static_cast<int64_t>(plan.tasks().size());
  for_each_task(stream, num_tasks, [&](int64_t index, const Worker& worker) {
    const AttentionTask& task = plan.tasks()[index];
    const QueryTile& tile = plan.tiles()[task.tile];
    if (continues && tile.block_begin == tile.block_end) return;
    Carver scratch = workspace.of_thread(worker.thread);
    TileAttention<Products> work(args, tile, task.kv_head, kernel, scratch);
    if (args.merged > 1) {
      scratch.take<char>(tile_bytes);
      return attend_merged(work, args, tile, task.kv_head, scratch, worker);
    }
    if (continues && task.part == 0) work.begin_with(result_of(args, tile, task.kv_head));
    add_blocks(
        work, args, tile,
        {tile.item, tile.part_begin(task.part), tile.part_begin(task.part + 1), tile.key_end},
        std::nullopt, worker);
    const int64_t partial = tile.partial(task.kv_head, task.part);
    work.write(tile.num_parts == 1 ? result_of(args, tile, task.kv_head)
                                   : Destination{partials.out(partial), partials.lse(partial),
                                                 group * head_dim, group});
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
  attend<WideProducts>(nullptr, args, stream, workspace, plan);
}

void attention_bf16(const Bf16Kernel& kernel, const AttentionArgs& args,
                    const device::Stream& stream, Workspace& workspace, AttentionPlan& plan) {
  attend<Bf16Products>(&kernel, args, stream, workspace, plan);
}

}  // namespace pecia::kernels::cpu
