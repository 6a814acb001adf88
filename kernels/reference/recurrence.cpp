// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// One row of one head, S [key_dim, value_dim].
void take_in(const RecurrenceArgs& args, int64_t row, int64_t head, float* state) {
  const int64_t key_dim = args.key_dim(), value_dim = args.value_dim();
  const int64_t first_key = head * args.key_heads() / args.heads() * key_dim;
  const float* k = row_of(args.k, row) + first_key;
  const double decay = std::exp(double{row_of(args.decay, row)[head]});
  const double strength = row_of(args.strength, row)[head];
  const double skip = args.skip ? args.skip.as<float>()[head] : 0;
  for (int64_t j = 0; j < value_dim; ++j) {
    double read = 0;
    if (args.corrects)
      for (int64_t i = 0; i < key_dim; ++i) read += decay * state[i * value_dim + j] * k[i];
    const double value = args.v ? row_of(args.v, row)[head * value_dim + j] : 0;
    const double change = strength * (value - read);
    double result = args.skip ? skip * value : 0;
    for (int64_t i = 0; i < key_dim; ++i) {
      float& element = state[i * value_dim + j];
      element = static_cast<float>(decay * element + k[i] * change);
      if (args.out) result += double{element} * row_of(args.q, row)[first_key + i];
    }
    if (args.out) row_of(args.out, row)[head * value_dim + j] = static_cast<float>(result);
  }
}

}  // namespace

void recurrence(const RecurrenceArgs& args) {
  const int64_t elements = args.key_dim() * args.value_dim();
  for (const StateRows& item : args.items)
    for (int64_t head = 0; head < args.heads(); ++head)
      for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
        take_in(args, row, head, row_of(args.states, item.state) + head * elements);
}

}  // namespace pecia::kernels::reference
