// SPDX-License-Identifier: Apache-2.0
/// The arguments of the ops of recurrent layers.

#include "kernels/api/checks.hpp"
#include "kernels/api/validate.hpp"

namespace pecia::kernels {
namespace {

void check_matrix(std::string_view name, const TensorView& view, int64_t rows, int64_t columns) {
  check_fp32(name, view);
  check_shape(name, view, {rows, columns});
}

void check_vector(std::string_view name, const TensorView& view, int64_t size) {
  check_fp32(name, view);
  check_shape(name, view, {size});
}

/// Rows of heads, which may be one axis with their elements.
void check_heads(std::string_view name, const TensorView& view, int64_t rows, int64_t heads,
                 int64_t dim) {
  check_fp32(name, view);
  PECIA_CHECK(view.rank() >= 2 && view.rows() == rows && view.row_elements() == heads * dim,
              "{} has {} rows of {} elements, expected {} of {} heads of {}", name, view.rows(),
              view.row_elements(), rows, heads, dim);
}

/// `what` an item has: a tail, or a state.
void check_item(int64_t first_row, int64_t num_rows, int64_t rows, std::string_view what,
                int64_t index, int64_t count) {
  PECIA_CHECK(first_row >= 0 && num_rows >= 0 && first_row <= rows - num_rows,
              "rows [{}, {}) of {}", first_row, first_row + num_rows, rows);
  PECIA_CHECK(index >= 0 && index < count, "{} {} of {}", what, index, count);
}

}  // namespace

void validate(const CausalConvArgs& args) {
  check_rank("x", args.x, 2);
  check_fp32("x", args.x);
  const int64_t rows = args.x.rows(), channels = args.x.size(1);
  check_rank("weight", args.weight, 2);
  const int64_t taps = args.weight.size(1);
  PECIA_CHECK(taps >= least_conv_taps && taps <= most_conv_taps,
              "a convolution of {} taps, expected {} to {}", taps, least_conv_taps, most_conv_taps);
  check_matrix("weight", args.weight, channels, taps);
  check_dense("weight", args.weight);
  if (args.bias) check_vector("bias", args.bias, channels);
  check_matrix("tails", args.tails, args.tails.rows(), channels);
  PECIA_CHECK(args.tails.rows() % (taps - 1) == 0, "{} rows of tails of {} each", args.tails.rows(),
              taps - 1);
  check_matrix("out", args.out, rows, channels);
  PECIA_CHECK(args.out.data() != args.x.data() || rows == 0, "a convolution in place");
  for (const StateRows& item : args.items)
    check_item(item.first_row, item.num_rows, rows, "tail", item.state,
               args.tails.rows() / (taps - 1));
}

void validate(const RecurrenceGatesArgs& args) {
  check_rank("a", args.a, 2);
  check_fp32("a", args.a);
  const int64_t rows = args.a.rows(), heads = args.a.size(1);
  if (args.b) check_matrix("b", args.b, rows, heads);
  check_vector("rate", args.rate, heads);
  check_vector("bias", args.bias, heads);
  check_matrix("decay", args.decay, rows, heads);
  check_matrix("strength", args.strength, rows, heads);
  PECIA_CHECK(args.least_step <= args.most_step, "steps from {} to {}", args.least_step,
              args.most_step);
}

void validate(const RecurrenceArgs& args) {
  check_rank("states", args.states, 4);
  check_fp32("states", args.states);
  const int64_t rows = args.decay.rows(), heads = args.heads();
  PECIA_CHECK(args.key_dim() >= 1 && args.value_dim() >= 1 && heads >= 1,
              "states of {} heads of {} × {}", heads, args.key_dim(), args.value_dim());
  PECIA_CHECK(args.k.rank() >= 2 && args.key_heads() >= 1, "a recurrence without keys");
  check_heads("k", args.k, rows, args.key_heads(), args.key_dim());
  if (args.out) {
    check_heads("q", args.q, rows, args.key_heads(), args.key_dim());
    check_heads("out", args.out, rows, heads, args.value_dim());
  }
  if (args.v) check_heads("v", args.v, rows, heads, args.value_dim());
  check_matrix("decay", args.decay, rows, heads);
  check_matrix("strength", args.strength, rows, heads);
  if (args.skip) check_vector("skip", args.skip, heads);
  for (const StateRows& item : args.items)
    check_item(item.first_row, item.num_rows, rows, "state", item.state, args.states.rows());
}

}  // namespace pecia::kernels
