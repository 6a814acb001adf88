// SPDX-License-Identifier: Apache-2.0
/// Rows are sorted by expert. Each expert's rows are gathered, multiplied by its three matrices,
/// and added to y.

#include "kernels/cpu/experts.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// Scratch of an expert's rows: 24 MiB with 2048 hidden and 768 FFN columns in fp32.
constexpr int64_t most_rows = 1024;

TensorView gathered(const ExpertsArgs& args, std::span<const ExpertRow> rows,
                    const device::Stream& stream, device::Buffer& buffer) {
  if (rows.size() == 1) return args.x.slice_rows(rows.front().row, 1);
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t width = args.x.size(1), bytes = width * size_of(args.x.dtype());
  const TensorView to = buffer.tensor(args.x.dtype(), {count, width});
  for_each_range(stream, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(to.row(i), args.x.row(rows[i].row), bytes);
  });
  return to;
}

/// Multiplies each row of x, fp32, by its weight.
void weigh_rows(const TensorView& x, std::span<const ExpertRow> rows,
                const device::Stream& stream) {
  const int64_t width = x.size(1);
  for_each_range(stream, x.rows(), rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (float& number : std::span(static_cast<float*>(x.row(i)), width))
        number *= rows[i].weight;
  });
}

/// No two of the rows are the same row of y.
void add_weighted(const TensorView& from, std::span<const ExpertRow> rows, Weighed weighed,
                  const TensorView& y, const device::Stream& stream) {
  const int64_t width = y.size(1);
  for_each_range(stream, from.rows(), rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto* const term = static_cast<const float*>(from.row(i));
      auto* const sum = static_cast<float*>(y.row(rows[i].row));
      const float weight = weighed == Weighed::outputs ? rows[i].weight : 1.0f;
      for (int64_t column = 0; column < width; ++column) sum[column] += weight * term[column];
    }
  });
}

}  // namespace

/// Counting sort by expert, which keeps the order of rows.
void Experts::sort(const ExpertsArgs& args) {
  const int64_t k = args.chosen.size(1), pairs = args.x.rows() * k;
  const auto* const chosen = args.chosen.as<const int32_t>();
  const int64_t count = std::ssize(args.experts);
  const auto place = [&](int64_t i) {  // among the experts that are here; -1: it is not
    const int64_t here = chosen[i] - args.first_expert;
    return here >= 0 && here < count ? here : -1;
  };
  ends_.assign(count + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) {
    PECIA_CHECK(chosen[i] >= 0 && chosen[i] < args.all_experts(), "expert {} of {}", chosen[i],
                args.all_experts());
    if (const int64_t here = place(i); here >= 0) ++ends_[here + 1];
  }
  for (int64_t e = 0; e < count; ++e) ends_[e + 1] += ends_[e];
  rows_.resize(ends_.back());
  for (int64_t i = 0; i < pairs; ++i)
    if (const int64_t here = place(i); here >= 0)
      rows_[ends_[here]++] = {i / k, args.weights.as<const float>()[i]};
}

void Experts::run(const ExpertsArgs& args, const device::Stream& stream, const Linear& linear,
                  const std::function<DType(DType)>& operand_type) {
  sort(args);
  for_each_range(stream, args.y.rows(), rows_per_task(args.y.size(1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t)
                     std::memset(args.y.row(t), 0, args.y.size(1) * sizeof(float));
                 });
  int64_t first = 0;
  for (size_t e = 0; e < args.experts.size(); ++e)
    while (first < ends_[e]) {
      const int64_t count = std::min(most_rows, ends_[e] - first);
      add_expert(args, args.experts[e], std::span(rows_).subspan(first, count), stream, linear,
                 operand_type(args.experts[e].down.dtype()));
      first += count;
    }
}

void Experts::add_expert(const ExpertsArgs& args, const Expert& expert,
                         std::span<const ExpertRow> rows, const device::Stream& stream,
                         const Linear& linear, DType operand) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto multiply = [&](const TensorView& x, const TensorView& weight, const TensorView& scales,
                            float factor, const TensorView& bias, const TensorView& y,
                            SameX same_x = SameX::no) {
    linear({.x = x,
            .weight = weight,
            .bias = bias,
            .y = y,
            .row_invariant = args.row_invariant,
            .weight_scales = scales,
            .same_x = same_x,
            .weight_factor = factor});
  };
  const TensorView x = gathered(args, rows, stream, x_);
  const bool are_one =
      expert.gate.data() == expert.up.data() && expert.gate_bias.data() == expert.up_bias.data();
  const TensorView gate = gate_.tensor(DType::fp32, {count, expert.gate.rows()});
  const TensorView up = are_one ? gate : up_.tensor(DType::fp32, {count, expert.up.rows()});
  multiply(x, expert.gate, expert.gate_scales, expert.gate_factor, expert.gate_bias, gate);
  if (!are_one)
    multiply(x, expert.up, expert.up_scales, expert.up_factor, expert.up_bias, up, SameX::yes);
  if (args.weighed == Weighed::inputs) {
    weigh_rows(gate, rows, stream);
    if (!are_one) weigh_rows(up, rows, stream);
  }
  const TensorView activated =
      operand == DType::fp32 ? gate : activated_.tensor(operand, {count, gate.size(1)});
  gated_activation({gate, up, activated, args.activation}, stream);
  const TensorView out = out_.tensor(DType::fp32, {count, args.y.size(1)});
  multiply(activated, expert.down, expert.down_scales, expert.down_factor, expert.down_bias, out);
  add_weighted(out, rows, args.weighed, args.y, stream);
}

}  // namespace pecia::kernels::cpu
