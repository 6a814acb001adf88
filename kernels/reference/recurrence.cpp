// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/recurrence.hpp"

#include <cmath>

namespace pecia::kernels::reference {
namespace {

/// One row of one head, S [key_dim, value_dim].
void take_in(const RecurrenceArgs& args, int64_t row, int64_t head, float* state) {
  const int64_t key_heads = args.k.size(1), heads = args.states.size(1);
  const int64_t key_dim = args.k.size(2), value_dim = args.states.size(3);
  const int64_t key_head = head * key_heads / heads;
  const auto at = [row](const TensorView& x, int64_t first) {
    return static_cast<const float*>(x.row(row)) + first;
  };
  const float* k = at(args.k, key_head * key_dim);
  const double decay = std::exp(double{*at(args.decay, head)});
  const double strength = *at(args.strength, head);
  for (int64_t j = 0; j < value_dim; ++j) {
    double read = 0, result = 0;
    if (args.corrects)
      for (int64_t i = 0; i < key_dim; ++i) read += decay * state[i * value_dim + j] * k[i];
    const double value = args.v ? *at(args.v, head * value_dim + j) : 0;
    const double change = strength * (value - read);
    for (int64_t i = 0; i < key_dim; ++i) {
      float& element = state[i * value_dim + j];
      element = static_cast<float>(decay * element + k[i] * change);
      if (args.out) result += double{element} * *at(args.q, key_head * key_dim + i);
    }
    if (args.out)
      static_cast<float*>(args.out.row(row))[head * value_dim + j] = static_cast<float>(result);
  }
}

}  // namespace

void recurrence(const RecurrenceArgs& args) {
  const int64_t heads = args.states.size(1);
  const int64_t elements = args.states.size(2) * args.states.size(3);
  for (const RecurrentRows& item : args.items)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
        take_in(args, row, head,
                static_cast<float*>(args.states.row(item.state)) + head * elements);
}

}  // namespace pecia::kernels::reference
