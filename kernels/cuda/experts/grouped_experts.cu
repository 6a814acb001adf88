// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/experts/expert_kernels.cuh"
#include "kernels/cuda/experts/expert_library_kernels.cuh"
#include "kernels/cuda/experts/expert_tiles_kernel.cuh"
#include "kernels/cuda/experts/grouped_experts.hpp"
#include "kernels/cuda/experts/sum_pairs_kernel.cuh"
#include "kernels/cuda/linear/code_views.cuh"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {
namespace {

// 128 rows × 256 columns, the fastest of seven on an H100 (apps/results/h100.md), and 128 × 128 for
// GPUs whose blocks have less shared memory.
using LargeBlock = LinearBlock<2, 4, 4, 4, 64, 3>;
using SmallBlock = LinearBlock<2, 2, 4, 4, 32, 4>;
// Rows of an expert on average from which tiles are taken. With 32 they took half the time of groups
// of few rows on an H100; fewer are not measured.
constexpr int64_t least_tiled_rows = 16;
// Rows from which the library takes codes, too, which are widened for it. That takes 2.5 bytes of
// traffic a number, 0.8 ps on an H100, and its products gain 7 fs a row (700 in place of 200
// TFLOP/s), by arithmetic: not measured.
constexpr int64_t least_widened_rows = 128;

// Tiles of 8 columns of a block of few rows: the fastest on an H100 for bf16 and mxfp4.
constexpr int gate_tiles = 1, down_tiles = 2;
// Stretches that a warp reads ahead, and blocks on a multiprocessor: the most that registers allow
// without spills. By arithmetic (kernels/cuda.md): not measured.
template <typename Codes>
constexpr int ahead_of = many_warps_fit<Codes> ? 1 : 2;
template <typename Codes>
constexpr int gate_blocks = many_warps_fit<Codes> ? 8
                            : Codes::has_least    ? 4
                                                  : 5;
template <typename Codes, bool Aligned>
constexpr int down_blocks = many_warps_fit<Codes> ? (Aligned ? 8 : 7)
                            : Codes::has_least    ? 4
                                                  : 6;

/// Calls body(Codes{}).
template <typename Body>
void with_rows_at_chunks(DType type, const Body& body) {
  if (type == DType::bf16)
    body(Bf16Rows());
  else
    with_codes(type, true, [&](auto codes, auto) { body(codes); });
}

bool is_grouped(DType type) {
  return type == DType::bf16 || is_code(type);
}

/// Whether each row of a matrix of each expert has one scale.
bool has_one_scale(const ExpertsArgs& args, TensorView Expert::*scales) {
  return std::ranges::all_of(args.experts, [&](const Expert& expert) {
    const TensorView& own = expert.*scales;
    return own && (own.rank() == 1 || own.size(1) == 1);
  });
}

/// Whether a matrix of each expert is fp8 of `model.dtype: fp8`, which multiplies x rounded to fp8.
bool rounds_x(const ExpertsArgs& args, TensorView Expert::*matrix, TensorView Expert::*scales) {
  return std::ranges::all_of(args.experts, [&](const Expert& expert) {
    return (expert.*matrix).dtype() == DType::fp8 && (expert.*scales).rank() == 1;
  });
}

/// The tables of experts on the device, and whether all their rows begin at multiples of 16 bytes.
struct Tables {
  const GateAndUp* gates;
  const QuantizedMatrix* downs;
  bool aligned_gates = true, aligned_downs = true;
};

Tables tables_of(const ExpertsArgs& args, Context& context, device::Stream& stream) {
  Tables tables{};
  std::vector<GateAndUp> gates;
  std::vector<QuantizedMatrix> downs;
  const int64_t hidden = args.x.size(1), ffn = args.experts.front().gate.rows();
  for (const Expert& expert : args.experts) {
    gates.push_back(
        {coded_matrix_of(expert.gate, expert.gate_scales, expert.gate_factor, expert.gate_bias,
                         hidden),
         coded_matrix_of(expert.up, expert.up_scales, expert.up_factor, expert.up_bias, hidden)});
    downs.push_back(coded_matrix_of(expert.down, expert.down_scales, expert.down_factor,
                                    expert.down_bias, ffn));
    tables.aligned_gates = tables.aligned_gates && begin_at_chunks(gates.back().gate.rows) &&
                           begin_at_chunks(gates.back().up.rows);
    tables.aligned_downs = tables.aligned_downs && begin_at_chunks(downs.back().rows);
  }
  const std::span<const GateAndUp> all_gates = gates;
  const std::span<const QuantizedMatrix> all_downs = downs;
  tables.gates = context.kept_arrays.keep(all_gates, stream);
  tables.downs = context.kept_arrays.keep(all_downs, stream);
  return tables;
}

}  // namespace

bool takes_grouped(const ExpertsArgs& args) {
  const Expert& first = args.experts.front();
  return is_grouped(first.gate.dtype()) && is_grouped(first.down.dtype()) &&
         std::ranges::all_of(args.experts, [&](const Expert& expert) {
           return expert.gate.dtype() == first.gate.dtype() &&
                  expert.up.dtype() == first.gate.dtype() &&
                  expert.down.dtype() == first.down.dtype();
         });
}

namespace {

/// A call's rows that are multiplied together.
struct Rows {
  TensorView x;           ///< [rows, hidden] bf16
  const int32_t* chosen;  ///< [rows, k]
  const float* weights;   ///< [rows, k]
  TensorView y;           ///< [rows, hidden]
};

class GroupedExperts {
 public:
  GroupedExperts(const ExpertsArgs& args, Context& context, device::Stream& stream)
      : args_(args),
        context_(context),
        stream_(stream),
        tables_(tables_of(args, context, stream)),
        first_(args.experts.front()),
        count_(std::ssize(args.experts)),
        k_(args.chosen.size(1)),
        hidden_(args.x.size(1)),
        ffn_(first_.gate.rows()) {}

  /// How a call's rows are multiplied, by how many of them an expert has on average.
  enum class Path { few, tiles, library, library_in_fp8 };
  Path path() const {
    const int64_t of_expert = args_.x.rows() * k_ / args_.all_experts();
    const bool tiled = args_.row_invariant == RowInvariant::no && tables_.aligned_gates &&
                       tables_.aligned_downs && hidden_ % run_numbers == 0 &&
                       ffn_ % run_numbers == 0;
    if (!tiled || of_expert < least_tiled_rows) return Path::few;
    if (multiplies_in_fp8()) return Path::library_in_fp8;
    const bool wide = first_.gate.dtype() == DType::bf16 && first_.down.dtype() == DType::bf16;
    const int64_t least = wide ? least_tiled_rows : least_widened_rows;
    return context_.grouped_matmul && of_expert >= least ? Path::library : Path::tiles;
  }

  /// The memory in which a row's products with its experts wait for their sum.
  int64_t row_bytes() const {
    const Path by = path();
    const bool rounded = by == Path::library || by == Path::library_in_fp8;
    const int64_t codes = by == Path::library_in_fp8 ? ffn_ + 2 * size_of(DType::fp32) : 0;
    return k_ * (hidden_ * size_of(rounded ? DType::bf16 : DType::fp32) +
                 ffn_ * size_of(DType::bf16) + codes);
  }

  void run(const Rows& rows) const {
    switch (path()) {
      case Path::few:
        return multiply_few(rows);
      case Path::tiles:
        if (context_.device.info().shared_bytes >= LargeBlock::shared_bytes)
          return multiply_tiles<LargeBlock>(rows);
        return multiply_tiles<SmallBlock>(rows);
      case Path::library:
        return multiply_by_library(rows);
      case Path::library_in_fp8:
        return multiply_in_fp8(rows);
    }
  }

 private:
  bool multiplies_in_fp8() const {
    return context_.grouped_matmul && context_.why_no_grouped_fp8.empty() &&
           hidden_ % chunk_bytes == 0 && ffn_ % chunk_bytes == 0 &&
           rounds_x(args_, &Expert::gate, &Expert::gate_scales) &&
           rounds_x(args_, &Expert::up, &Expert::up_scales) &&
           rounds_x(args_, &Expert::down, &Expert::down_scales);
  }

  struct Pairs {
    int64_t count, num_groups;
    const ExpertGroup* groups;
    const int32_t *order, *places;  ///< see group_pairs_kernel
  };
  Pairs group(const Rows& rows, int64_t rows_of_group) const {
    const int64_t pairs = rows.x.rows() * k_;
    const int64_t groups = most_groups(pairs, count_, rows_of_group);
    constexpr auto ints = static_cast<int64_t>(sizeof(ExpertGroup) / sizeof(int32_t));
    auto* const begin =
        context_.expert_pairs.tensor(DType::int32, {ints * groups + 2 * pairs}).as<int32_t>();
    auto* const first_group = reinterpret_cast<ExpertGroup*>(begin);
    auto* const order = begin + ints * groups;
    auto* const places = order + pairs;
    launch_early(stream_,
                 {.x = 1,
                  .threads = pairs > 2048 ? 1024 : 256,
                  .shared_bytes = count_ * size_of(DType::int32)},
                 group_pairs_kernel, rows.chosen, pairs, args_.first_expert, count_,
                 static_cast<int32_t>(rows_of_group), first_group, groups, order, places);
    return {pairs, groups, first_group, order, places};
  }
  bool weighs_inputs() const { return args_.weighed == Weighed::inputs; }
  /// As the kernels of gate and up take them.
  const float* of_inputs(const Rows& rows) const {
    return weighs_inputs() ? rows.weights : nullptr;
  }
  TensorView room_for_activated(const Pairs& pairs) const {
    const int64_t padded = (ffn_ + 7) / 8 * 8;
    return context_.activated.tensor(DType::bf16, {pairs.count, padded}).slice_columns(0, ffn_);
  }
  TensorView room_for_products(const Pairs& pairs, DType type) const {
    return context_.products.tensor(type, {pairs.count, hidden_});
  }

  void multiply_few(const Rows& rows) const {
    const bool one_row = rows.x.rows() == 1;
    const Pairs pairs =
        one_row ? Pairs{k_, k_, nullptr, nullptr, nullptr} : group(rows, coded_rows);
    const FewGroups groups = {pairs.groups, pairs.order, rows.chosen, args_.first_expert, count_};
    const TensorView activated = room_for_activated(pairs);
    const TensorView products = room_for_products(pairs, DType::fp32);
    const auto grid = [&](int64_t width, int64_t tiles) {
      return Grid{.x = (width + 8 * tiles - 1) / (8 * tiles),
                  .y = pairs.num_groups,
                  .threads = expert_threads};
    };
    const bool one_scale =
        has_one_scale(args_, &Expert::gate_scales) && has_one_scale(args_, &Expert::up_scales);
    with_rows(first_.gate.dtype(), one_scale, tables_.aligned_gates, [&](auto codes, auto aligned) {
      using Codes = decltype(codes);
      launch_early(stream_, grid(ffn_, gate_tiles),
                   expert_gate_kernel<Codes, decltype(aligned)::value, gate_tiles, ahead_of<Codes>,
                                      gate_blocks<Codes>>,
                   matrix<const Bf16>(rows.x), k_, tables_.gates, groups, of_inputs(rows),
                   args_.activation, matrix<Bf16>(activated));
    });
    const bool down_one_scale = has_one_scale(args_, &Expert::down_scales);
    with_rows(first_.down.dtype(), down_one_scale, tables_.aligned_downs,
              [&](auto codes, auto aligned) {
                using Codes = decltype(codes);
                constexpr bool is_aligned = decltype(aligned)::value;
                launch_early(stream_, grid(hidden_, down_tiles),
                             expert_down_kernel<Codes, is_aligned, down_tiles, ahead_of<Codes>,
                                                down_blocks<Codes, is_aligned>>,
                             matrix<const Bf16>(activated), tables_.downs, groups,
                             matrix<float>(products));
              });
    sum<float>(rows, products, nullptr);
  }

  template <typename Block>
  void multiply_tiles(const Rows& rows) const {
    const Pairs pairs = group(rows, Block::rows);
    const TensorView activated = room_for_activated(pairs);
    const TensorView products = room_for_products(pairs, DType::fp32);
    const auto grid = [&](int64_t width, int64_t columns) {
      return Grid{.x = (width + columns - 1) / columns,
                  .y = pairs.num_groups,
                  .threads = Block::threads,
                  .shared_bytes = Block::shared_bytes};
    };
    with_rows_at_chunks(first_.gate.dtype(), [&](auto codes) {
      launch_early(stream_, grid(ffn_, Block::columns / 2),
                   expert_gate_tiles_kernel<decltype(codes), Block>, matrix<const Bf16>(rows.x), k_,
                   tables_.gates, pairs.groups, pairs.order, of_inputs(rows), args_.activation,
                   matrix<Bf16>(activated));
    });
    with_rows_at_chunks(first_.down.dtype(), [&](auto codes) {
      launch_early(stream_, grid(hidden_, Block::columns),
                   expert_down_tiles_kernel<decltype(codes), Block>, matrix<const Bf16>(activated),
                   tables_.downs, pairs.groups, pairs.order, matrix<float>(products));
    });
    sum<float>(rows, products, nullptr);
  }

  /// The rows of an expert stand together, in the memory that the products of `down` take after them.
  void multiply_by_library(const Rows& rows) const {
    const Pairs pairs = group(rows, rows.x.rows() * k_ + 1);  // all of an expert's
    const TensorView placed = room_for_products(pairs, DType::bf16);
    launch_early(stream_, grid_of_rows(rows.x.rows(), hidden_ / run_numbers), place_rows_kernel,
                 matrix<const Bf16>(rows.x), pairs.places, k_, of_inputs(rows),
                 matrix<Bf16>(placed));
    const TensorView activated = room_for_activated(pairs);
    multiply_groups<Bf16>(pairs, {placed}, gate_table(), first_.gate.dtype(), activated, {});
    multiply_groups<Bf16>(pairs, {placed}, up_table(), first_.up.dtype(), activated,
                          args_.activation);
    const TensorView& products = placed;
    multiply_groups<Bf16>(pairs, {activated}, {tables_.downs, 1}, first_.down.dtype(), products,
                          {});
    sum<Bf16>(rows, products, pairs.places);
  }

  /// Does the same with x and activations as codes, which `linear` makes of x, too.
  void multiply_in_fp8(const Rows& rows) const {
    const Pairs pairs = group(rows, rows.x.rows() * k_ + 1);
    const Codes of_x = {room_for(rows.x, DType::fp8, context_.codes),
                        context_.code_scales.tensor(DType::fp32, {rows.x.rows()}).as<float>()};
    context_.rounded_x = {};
    quantize_rows({rows.x, of_x.rows, TensorView(of_x.scales, DType::fp32, {rows.x.rows()})},
                  context_, stream_);
    const TensorView products = room_for_products(pairs, DType::bf16);
    const auto scales = context_.pair_scales.tensor(DType::fp32, {2, pairs.count});
    const Codes placed = {TensorView(products.data(), DType::fp8, {pairs.count, hidden_}),
                          scales.slice_rows(0, 1).as<float>()};
    launch_early(stream_, grid_of_rows(rows.x.rows(), hidden_ / chunk_bytes), place_codes_kernel,
                 matrix<const Fp8>(of_x.rows), of_x.scales, pairs.places, k_, of_inputs(rows),
                 matrix<Fp8>(placed.rows), placed.scales);
    const TensorView activated = room_for_activated(pairs);
    multiply_groups<Fp8>(pairs, {placed.rows, placed.scales}, gate_table(), DType::fp8, activated,
                         {});
    multiply_groups<Fp8>(pairs, {placed.rows, placed.scales}, up_table(), DType::fp8, activated,
                         args_.activation);
    const Codes codes = {context_.activated_codes.tensor(DType::fp8, {pairs.count, ffn_}),
                         scales.slice_rows(1, 1).as<float>()};
    const auto threads = std::clamp<int64_t>((ffn_ / run_numbers + 31) / 32 * 32, 32, 512);
    launch_early(stream_, {.x = pairs.count, .threads = static_cast<int>(threads)},
                 quantize_pairs_kernel, matrix<const Bf16>(activated), pairs.places,
                 matrix<Fp8>(codes.rows), codes.scales);
    multiply_groups<Fp8>(pairs, {codes.rows, codes.scales}, {tables_.downs, 1}, DType::fp8,
                         products, {});
    sum<Bf16>(rows, products, pairs.places);
  }
  struct Codes {
    TensorView rows;
    float* scales;
  };

  static_assert(sizeof(GateAndUp) == 2 * sizeof(QuantizedMatrix));
  ExpertMatrixTable gate_table() const {
    return {reinterpret_cast<const QuantizedMatrix*>(tables_.gates), 2};
  }
  ExpertMatrixTable up_table() const { return {gate_table().first + 1, 2}; }

  /// Rows of pairs, of bf16, or of fp8 with scales.
  struct Operand {
    TensorView rows;
    const float* scales = nullptr;
  };
  /// y = x · weights of each group's expert. For x of bf16 other weights are widened, for some groups
  /// at a time.
  template <typename T>
  void multiply_groups(const Pairs& pairs, const Operand& x, const ExpertMatrixTable& weights,
                       DType type, const TensorView& y,
                       const std::optional<Activation>& of_gates) const {
    const int64_t columns = y.size(1), depth = x.rows.size(1);
    const int64_t bytes = columns * depth * size_of(DType::bf16);
    const bool widens = type != x.rows.dtype();
    const int64_t most =
        widens ? std::max<int64_t>(1, context_.widened_expert_bytes / bytes) : pairs.num_groups;
    const int64_t pieces = (pairs.num_groups + most - 1) / most;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t first = piece * pairs.num_groups / pieces;
      const int64_t count = (piece + 1) * pairs.num_groups / pieces - first;
      const ExpertGroup* const groups = pairs.groups + first;
      Matrix<const T> widened{};
      if constexpr (std::is_same_v<T, Bf16>)
        if (widens) {
          const TensorView to = context_.widened.tensor(DType::bf16, {count * columns, depth});
          widen(weights, type, groups, columns, to);
          widened = matrix<const Bf16>(to);
        }
      const GroupArrays arrays = room_for_arrays(count, columns);
      launch_early(stream_, {.x = count}, describe_groups_kernel<T>, weights, groups,
                   matrix<const T>(x.rows), x.scales, widened, matrix<Bf16>(y), arrays);
      context_.grouped_matmul->run({arrays, count, columns, x.rows.dtype(), of_gates}, stream_);
    }
  }

  void widen(const ExpertMatrixTable& weights, DType type, const ExpertGroup* groups,
             int64_t columns, const TensorView& to) const {
    const int64_t chunks = row_elements(type, to.size(1)) * size_of(type) / chunk_bytes + 1;
    with_codes(type, true, [&](auto codes, auto) {
      launch_early(stream_, grid_of_rows(to.rows(), chunks), widen_experts_kernel<decltype(codes)>,
                   weights, groups, columns, matrix<Bf16>(to));
    });
  }

  GroupArrays room_for_arrays(int64_t groups, int64_t columns) const {
    constexpr int64_t words = 7, ints = sizeof(GroupShape) / sizeof(int32_t);
    const int64_t of_group = 2 * words + ints + 2 * columns;
    auto* const begin = static_cast<int64_t*>(
        context_.group_arrays.tensor(DType::int32, {groups * of_group}).data());
    auto* const bias = reinterpret_cast<float*>(begin + words * groups);
    auto* const weight_scales = bias + groups * columns;
    return {reinterpret_cast<GroupShape*>(weight_scales + groups * columns),
            reinterpret_cast<const void**>(begin),
            reinterpret_cast<const void**>(begin + groups),
            reinterpret_cast<Bf16**>(begin + 2 * groups),
            begin + 3 * groups,
            begin + 4 * groups,
            begin + 5 * groups,
            bias,
            reinterpret_cast<const float**>(begin + 6 * groups),
            weight_scales};
  }

  /// `places`: see sum_pairs_kernel.
  template <typename T>
  void sum(const Rows& rows, const TensorView& products, const int32_t* places) const {
    const auto run = [&](auto kernel, int64_t at_once) {
      Grid grid = grid_of_rows(rows.x.rows(), hidden_ / at_once);
      grid.shared_bytes = 2 * k_ * size_of(DType::fp32);
      launch_early(stream_, grid, kernel, matrix<const T>(products), places, rows.chosen,
                   weighs_inputs() ? nullptr : rows.weights, k_, args_.first_expert, count_,
                   matrix<float>(rows.y));
    };
    aligned_to<4>(rows.y) ? run(sum_pairs_kernel<4, T>, 4) : run(sum_pairs_kernel<1, T>, 1);
  }

  const ExpertsArgs& args_;
  Context& context_;
  device::Stream& stream_;
  Tables tables_;
  const Expert& first_;
  int64_t count_, k_, hidden_, ffn_;
};

}  // namespace

void grouped_experts(const ExpertsArgs& args, const TensorView& x, Context& context,
                     device::Stream& stream) {
  const GroupedExperts experts(args, context, stream);
  const int64_t k = args.chosen.size(1);
  const int64_t most =
      std::max<int64_t>(coded_rows, gpu_expert_bytes / std::max<int64_t>(1, experts.row_bytes()));
  const int64_t rounds = (x.rows() + most - 1) / most, each = (x.rows() + rounds - 1) / rounds;
  for (int64_t first = 0; first < x.rows(); first += each) {
    const int64_t count = std::min(each, x.rows() - first);
    experts.run({x.slice_rows(first, count), args.chosen.as<const int32_t>() + first * k,
                 args.weights.as<const float>() + first * k, args.y.slice_rows(first, count)});
  }
}

}  // namespace pecia::kernels::cuda
