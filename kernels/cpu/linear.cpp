#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/dot.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/ordered_dot.hpp"
#include "kernels/cpu/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// Measured crossover at depths 576 and 4096: 48 rows with AVX-512, 24 to 32 with AVX2 (Zen 5).
constexpr int64_t few_rows = 32;
// A packed block of weights, depth × columns fp32, is 320 KiB: it lies in the second cache while
// all the rows of a task meet it.
constexpr int64_t max_depth = 640;
constexpr int64_t max_columns = 128;
// Rows multiplied between two polls: whole tiles of every vector width, under 0.1 ms.
constexpr int64_t rows_per_poll = 84;

/// Rows [begin, end) × columns [first, first + count) of y, before the products are added.
void begin_with_bias(const LinearArgs& args, int64_t begin, int64_t end, int64_t first,
                     int64_t count) {
  const int64_t element_bytes = size_of(args.bias.dtype());
  for (int64_t done = 0; done < count; done += max_columns) {
    const int64_t width = std::min(max_columns, count - done);
    float bias[max_columns];
    widen_rows(static_cast<const char*>(args.bias.data()) + (first + done) * element_bytes,
               args.bias.dtype(), width, 1, width, bias, width);
    for (int64_t r = begin; r < end; ++r) {
      float* const y = static_cast<float*>(args.y.row(r)) + first + done;
      for (int64_t o = 0; o < width; ++o)
        y[o] = args.accumulate == Accumulate::yes ? y[o] + bias[o] : bias[o];
    }
  }
}

bool adds(const LinearArgs& args) {
  return args.bias || args.accumulate == Accumulate::yes;
}

/// The first `out` columns of y by `dot`, in tasks of whole multiples of `unit` columns.
void few(const LinearArgs& args, const device::Stream& stream, int64_t out, int64_t unit,
         void (*dot)(const DotArgs&)) {
  const int64_t rows = args.x.rows();
  const int64_t even_share = (out + 4 * stream.num_threads() - 1) / (4 * stream.num_threads());
  const int64_t least = std::max(rows_per_task(args.x.size(1)), even_share);
  for_each_range(stream, out, (least + unit - 1) / unit * unit, [&](int64_t begin, int64_t end) {
    if (args.bias) begin_with_bias(args, 0, rows, begin, end - begin);
    dot({.a = args.x.as<float>(),
         .a_stride = args.x.row_stride(),
         .b = args.weight.row(begin),
         .b_dtype = args.weight.dtype(),
         .b_stride = args.weight.row_stride(),
         .c = args.y.as<float>() + begin,
         .c_stride = args.y.row_stride(),
         .rows = rows,
         .columns = end - begin,
         .depth = args.x.size(1),
         .accumulate = adds(args)});
  });
}

/// Rows × columns of y that one task computes.
struct Tile {
  int64_t rows, columns;
};

/// As large as leaves every thread some tasks: a task packs its weights anew.
Tile choose_tile(int64_t rows, int64_t out, int num_threads) {
  Tile tile{rows, max_columns};
  const auto tasks = [&] {
    return ((rows + tile.rows - 1) / tile.rows) * ((out + tile.columns - 1) / tile.columns);
  };
  const auto enough = [&] { return num_threads == 1 || tasks() >= 4 * num_threads; };
  while (!enough() && tile.rows > 512) tile.rows = (tile.rows + 1) / 2;
  while (!enough() && tile.columns > panel_columns()) tile.columns /= 2;
  return tile;
}

void compute_tile(const LinearArgs& args, int64_t first_row, int64_t last_row, int64_t first,
                  int64_t columns, float* packed, const Worker& worker) {
  const int64_t depth = args.x.size(1);
  const int64_t num_blocks = std::max<int64_t>(1, (depth + max_depth - 1) / max_depth);
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t begin = depth * block / num_blocks, end = depth * (block + 1) / num_blocks;
    const char* weights = static_cast<const char*>(args.weight.row(first));
    pack_transposed({.rows = weights + begin * size_of(args.weight.dtype()),
                     .dtype = args.weight.dtype(),
                     .row_stride = args.weight.row_stride(),
                     .columns = columns,
                     .depth = end - begin,
                     .packed = packed});
    for (int64_t row = first_row; row < last_row; row += rows_per_poll) {
      const int64_t stop = std::min(last_row, row + rows_per_poll);
      if (block == 0 && args.bias) begin_with_bias(args, row, stop, first, columns);
      gemm({.a = static_cast<const float*>(args.x.row(row)) + begin,
            .a_stride = args.x.row_stride(),
            .b = packed,
            .b_row_stride = panel_columns(),
            .b_panel_stride = panel_columns() * (end - begin),
            .c = static_cast<float*>(args.y.row(row)) + first,
            .c_stride = args.y.row_stride(),
            .rows = stop - row,
            .columns = columns,
            .depth = end - begin,
            .accumulate = block > 0 || adds(args)});
      worker.poll();
    }
  }
}

/// Columns [first, …) of y, from packed weights.
void many(const LinearArgs& args, const device::Stream& stream, Workspace& workspace,
          int64_t first) {
  const int64_t rows = args.x.rows(), out = args.y.size(1);
  const Tile tile = choose_tile(rows, out - first, stream.num_threads());
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out - first + tile.columns - 1) / tile.columns;
  constexpr int64_t packed_elements = max_depth * max_columns;
  workspace.reserve_threads(stream.num_threads(), Carver::bytes_of<float>(packed_elements));

  for_each_task(stream, row_tiles * column_tiles, [&](int64_t task, const Worker& worker) {
    const int64_t row = task % row_tiles * tile.rows;
    const int64_t column = first + task / row_tiles * tile.columns;
    compute_tile(args, row, std::min(rows, row + tile.rows), column,
                 std::min(tile.columns, out - column),
                 workspace.of_thread(worker.thread).take<float>(packed_elements), worker);
  });
}

/// Every element is one chain of fused multiply-adds in order of depth, whichever way is taken.
void row_invariant(const LinearArgs& args, const device::Stream& stream, Workspace& workspace) {
  const int64_t out = args.y.size(1), unit = panel_columns();
  const int64_t whole =
      args.x.rows() <= most_ordered_rows(args.weight.dtype()) ? out / unit * unit : 0;
  if (whole > 0) few(args, stream, whole, unit, ordered_dot_rows);
  if (whole < out) many(args, stream, workspace, whole);
}

}  // namespace

void linear(const LinearArgs& args, const device::Stream& stream, Workspace& workspace) {
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  if (args.row_invariant == RowInvariant::yes)
    row_invariant(args, stream, workspace);
  else if (args.x.rows() <= few_rows)
    few(args, stream, args.y.size(1), 8, dot_rows);
  else
    many(args, stream, workspace, 0);
}

}  // namespace pecia::kernels::cpu
