// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/api/gpu_traits.hpp"
#include "kernels/api/key_runs.hpp"
#include "kernels/api/validate.hpp"
#include "kernels/phantom/phantom.hpp"
#include "lib/base/core/fp8_vector.hpp"

namespace pecia::kernels {
namespace {

int64_t bytes_of(const TensorView& tensor) {
  return tensor ? tensor.elements() * size_of(tensor.dtype()) : 0;
}

int64_t bytes_of(const Expert& expert) {
  return bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down) +
         bytes_of(expert.gate_scales) + bytes_of(expert.up_scales) + bytes_of(expert.down_scales) +
         bytes_of(expert.gate_bias) + bytes_of(expert.up_bias) + bytes_of(expert.down_bias);
}

/// Keys and values of `count` tokens.
int64_t kv_bytes(int64_t count, int64_t heads, int64_t head_dim, DType dtype) {
  return 2 * count * heads * vector_bytes(dtype, head_dim);
}

/// Pairs of a query at one of `count` positions from `first` on and a key of the run that it sees.
double pairs_with(const KeyRun& run, int64_t first, int64_t count, Window window) {
  if (window || run.stride != 1) {
    int64_t pairs = 0;
    for (int64_t query = first; query < first + count; ++query)
      pairs += count_seen(run, query, window);
    return static_cast<double>(pairs);
  }
  // Query `first` sees `seen` keys, and each next query one more until all are seen.
  const int64_t seen = first + 1 - run.position;
  const int64_t none = std::clamp<int64_t>(1 - seen, 0, count);
  const int64_t some = std::clamp<int64_t>(run.num_keys - seen, none, count) - none;
  const auto growing = static_cast<double>(some);
  return growing * (static_cast<double>(seen + none) + 0.5 * (growing - 1)) +
         static_cast<double>(count - none - some) * static_cast<double>(run.num_keys);
}

/// Pairs of a row of the item and a key that it sees.
double visible_pairs(const AttentionArgs& args, const AttentionItem& item) {
  const auto positions = args.query_positions.subspan(item.first_row, item.num_rows);
  double pairs = 0;
  for (size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    for (end = begin + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;)
      ++end;
    for (const KeyRun& run : runs_of(args, item))
      pairs += pairs_with(run, positions[begin], static_cast<int64_t>(end - begin), args.window);
  }
  return pairs;
}

struct RowsOfItems {
  int64_t rows, items;  ///< that have rows
};

template <typename Item>
RowsOfItems rows_of(std::span<const Item> items) {
  RowsOfItems sum{0, 0};
  for (const Item& item : items) sum.rows += item.num_rows, sum.items += item.num_rows > 0 ? 1 : 0;
  return sum;
}

int64_t most_rows(std::span<const StateRows> items) {
  int64_t most = 0;
  for (const StateRows& item : items) most = std::max(most, item.num_rows);
  return most;
}

class PhantomBackend : public Backend {
 public:
  PhantomBackend(std::function<void(const OpWork&)> on_op, BackendTraits traits)
      : on_op_(std::move(on_op)), traits_(std::move(traits)) {}

  std::string_view name() const override { return "phantom"; }
  DType operand_type(DType weights) const override { return traits_.operands_of(weights); }
  DType query_type(DType keys, int64_t head_dim) const override {
    return traits_.queries_of(keys, head_dim);
  }
  bool rounds_products() const override { return traits_.rounds_products; }
  bool continues_attention() const override { return traits_.continues_attention; }
  bool merges_attention() const override { return traits_.merges_attention; }
  bool gains_by_fewer_ops() const override { return traits_.gains_by_fewer_ops; }
  bool takes_gated_linear(const GatedLinearArgs& args) const override {
    return traits_.takes_gated_linear && traits_.takes_gated_linear(args);
  }

  void embedding(const EmbeddingArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t row_bytes = args.table.row_elements() * size_of(args.table.dtype());
    tell({"embedding", args.table.dtype(), args.out.rows(), 0, args.out.rows() * row_bytes,
          bytes_of(args.out)},
         stream);
  }
  void linear(const LinearArgs& args, device::Stream& stream) override {
    validate(args);
    const auto rows = static_cast<double>(args.x.rows());
    const int64_t added = args.accumulate == Accumulate::yes ? bytes_of(args.y) : 0;
    tell({"linear", args.weight.dtype(), args.x.rows(),
          2 * rows * static_cast<double>(args.x.size(1)) * static_cast<double>(args.y.size(1)),
          bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.weight_scales) +
              bytes_of(args.bias) + added,
          bytes_of(args.y), operands_of(args.x.dtype(), args.weight.dtype(), args.row_invariant),
          static_cast<double>(args.x.size(1)), args.y.size(1), 0,
          args.weight.dense() ? 0 : args.weight.row_elements() * size_of(args.weight.dtype())},
         stream);
  }
  void head_linear(const HeadLinearArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t heads_of_x = args.x_step == 0 ? 1 : args.heads;
    tell({"head_linear", args.weight.dtype(), args.x.rows(),
          2 * static_cast<double>(args.x.rows()) * static_cast<double>(args.weight.elements()),
          heads_of_x * bytes_of(args.x) + bytes_of(args.weight), args.heads * bytes_of(args.y),
          operands_of(args.x.dtype(), args.weight.dtype(), args.row_invariant),
          static_cast<double>(args.in()), args.heads * args.out()},
         stream);
  }
  void quantize_rows(const QuantizeRowsArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"quantize_rows", args.codes.dtype(), args.x.rows(), 0, bytes_of(args.x),
          bytes_of(args.codes) + bytes_of(args.scales) + bytes_of(args.square_sums)},
         stream);
  }
  void add(const AddArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"add", args.x.dtype(), args.y.rows(), 0, bytes_of(args.x) + bytes_of(args.y),
          bytes_of(args.y)},
         stream);
  }
  void mask_tokens(const MaskTokensArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"mask_tokens", args.logits.dtype(), args.logits.rows(), 0,
          static_cast<int64_t>(args.words.size_bytes()), bytes_of(args.logits)},
         stream);
  }
  void cast(const CastArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"cast", args.x.dtype(), args.x.rows(), 0, bytes_of(args.x), bytes_of(args.out)}, stream);
  }
  void square_sums(const SquareSumsArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"square_sums", args.x.dtype(), args.x.rows(), 0, bytes_of(args.x), bytes_of(args.sums)},
         stream);
  }
  void sum_rows(const SumRowsArgs& args, device::Stream& stream) override {
    validate(args);
    const auto taken = std::ranges::count_if(args.which, [](int32_t row) { return row >= 0; });
    const int64_t added = args.accumulate == Accumulate::yes ? bytes_of(args.out) : 0;
    tell({"sum_rows", args.x.dtype(), args.out.rows(), 0,
          taken * args.x.row_elements() * size_of(args.x.dtype()) + added, bytes_of(args.out)},
         stream);
  }
  void rms_norm(const RmsNormArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"rms_norm", args.x.dtype(), args.x.rows(), 0,
          bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.marks) + bytes_of(args.squares),
          bytes_of(args.out) + bytes_of(args.marks)},
         stream);
  }
  void rope(const RopeArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"rope", args.x.dtype(), args.x.rows(), 0,
          bytes_of(args.x) + bytes_of(args.cos) + bytes_of(args.sin), bytes_of(args.out)},
         stream);
  }
  void rope_tables(const RopeTablesArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"rope_tables", args.cos.dtype(), args.cos.rows(), 0,
          static_cast<int64_t>(args.positions.size_bytes() + args.sets.size_bytes() +
                               args.frequencies.size_bytes() + args.factors.size_bytes()),
          bytes_of(args.cos) + bytes_of(args.sin)},
         stream);
  }
  void kv_store(const KvStoreArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t vectors = args.x.rows() * args.x.size(1);
    tell({"kv_store", args.cache.dtype(), args.x.rows(), 0, bytes_of(args.x),
          vectors * vector_bytes(args.cache.dtype(), args.x.size(2))},
         stream);
  }
  void rotate_and_store(const RotateAndStoreArgs& args, device::Stream& stream) override {
    validate(args);
    const TensorView& cache = args.keys.vectors;
    const int64_t rows = args.q_out.rows(), kv_heads = cache.rows(), head_dim = cache.size(2);
    const int64_t heads = args.q_out.size(1) + 2 * kv_heads;
    tell({"rotate_and_store", cache.dtype(), rows, 0,
          rows * heads * head_dim * size_of(DType::fp32) + bytes_of(args.q_norm) +
              bytes_of(args.k_norm) + bytes_of(args.cos) + bytes_of(args.sin),
          bytes_of(args.q_out) + 2 * rows * kv_heads * vector_bytes(cache.dtype(), head_dim)},
         stream);
  }
  void attention(const AttentionArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t heads = args.q.size(1), head_dim = args.q.size(2);
    double pairs = 0, item_rows = 0;
    int64_t keys = 0;
    for (const AttentionItem& item : args.items) {
      if (item.num_rows == 0) continue;
      const double of_item = visible_pairs(args, item);
      pairs += of_item;
      item_rows += of_item * static_cast<double>(item.num_rows);
      keys += num_keys(runs_of(args, item));
    }
    const int64_t results = bytes_of(args.out) + bytes_of(args.lse);
    const int64_t of_keys = kv_bytes(keys, args.num_kv_heads, head_dim, args.kv_dtype);
    const int64_t earlier = args.from == AttentionFrom::result ? results : 0;
    tell({"attention", args.kv_dtype, args.q.rows(),
          2 * pairs * static_cast<double>(heads * (head_dim + args.out.size(2))),
          bytes_of(args.q) + of_keys / (args.keys.values_in_keys() ? 2 : 1) + earlier, results,
          args.kv_dtype, pairs / static_cast<double>(std::max<int64_t>(1, args.q.rows())),
          heads * head_dim, pairs > 0 ? item_rows / pairs : 0},
         stream);
  }
  void column_sums(const ColumnSumsArgs& args, device::Stream& stream) override {
    validate(args);
    const auto products =
        static_cast<double>(args.q.elements()) * static_cast<double>(args.run.num_keys);
    tell({"column_sums", args.kv_dtype, args.run.num_keys, 2 * products,
          bytes_of(args.q) + bytes_of(args.lse) +
              kv_bytes(args.run.num_keys, args.num_kv_heads, args.q.size(2), args.kv_dtype) / 2,
          bytes_of(args.sums), args.kv_dtype, static_cast<double>(args.q.rows()),
          args.q.size(1) * args.q.size(2)},
         stream);
  }
  void merge(const MergeArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t parts = bytes_of(args.part_out) + bytes_of(args.part_lse);
    const int64_t merged =
        args.part_out.elements() * size_of(DType::fp32) + bytes_of(args.part_lse);
    tell({"merge", args.out.dtype(), args.part_out.rows(), 0, parts + merged, merged}, stream);
  }
  void merge_picked(const MergePickedArgs& args, device::Stream& stream) override {
    validate(args);
    OpWork work{"merge_picked", args.out.dtype()};
    for (const PickedParts& parts : args.parts) {
      const int64_t merged = parts.out.elements() * size_of(DType::fp32) + bytes_of(parts.lse);
      work.rows += parts.out.rows();
      work.bytes_read += bytes_of(parts.out) + bytes_of(parts.lse) + bytes_of(parts.rows) + merged;
      work.bytes_written += merged;
    }
    tell(work, stream);
  }
  void kept_order(const KeptOrderArgs& args, device::Stream& stream) override {
    validate(args);
    OpWork work{"kept_order", DType::fp32};
    for (const OrderItem& item : args.items) {
      work.rows += item.count;
      if (divides(args, item)) work.bytes_read += item.count * size_of(DType::fp32);
      work.bytes_written += item.count * size_of(DType::int32);
    }
    tell(work, stream);
  }
  void pick_rows(const PickRowsArgs& args, device::Stream& stream) override {
    validate(args);
    OpWork work{"pick_rows", args.picks.empty() ? DType::fp32 : args.picks.front().from.dtype()};
    for (const auto& [from, rows, to] : args.picks) {
      work.rows += to.rows();
      work.bytes_read += to.elements() * size_of(from.dtype()) + bytes_of(rows);
      work.bytes_written += bytes_of(to);
    }
    tell(work, stream);
  }
  void row_need(const RowNeedArgs& args, device::Stream& stream) override {
    validate(args);
    OpWork work{"row_need", DType::fp32, args.need.rows()};
    work.bytes_read = bytes_of(args.here) + bytes_of(args.all) + bytes_of(args.need);
    work.bytes_written = bytes_of(args.need);
    for (const PickedParts& parts : args.always) {
      work.bytes_read += bytes_of(parts.lse) + bytes_of(parts.rows);
      work.bytes_written += bytes_of(parts.lse);
    }
    tell(work, stream);
  }
  void gated_activation(const GatedActivationArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"gated_activation", args.gate.dtype(), args.gate.rows(), 0,
          bytes_of(args.gate) + bytes_of(args.up), bytes_of(args.out)},
         stream);
  }
  void gated_linear(const GatedLinearArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t ffn = args.gate.rows(), depth = args.x.size(1);
    const auto bytes_of_half = [](const TensorView& weight, const TensorView& scales,
                                  const TensorView& bias) {
      return bytes_of(weight) + bytes_of(scales) + bytes_of(bias);
    };
    tell({"gated_linear", args.gate.dtype(), args.x.rows(),
          4 * static_cast<double>(args.x.rows()) * static_cast<double>(depth) *
              static_cast<double>(ffn),
          bytes_of(args.x) + bytes_of_half(args.gate, args.gate_scales, args.gate_bias) +
              bytes_of_half(args.up, args.up_scales, args.up_bias),
          bytes_of(args.out), operands_of(args.x.dtype(), args.gate.dtype(), RowInvariant::no),
          static_cast<double>(depth), 2 * ffn},
         stream);
  }
  void soft_cap(const SoftCapArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"soft_cap", args.x.dtype(), args.x.rows(), 0, bytes_of(args.x), bytes_of(args.x)},
         stream);
  }
  void xielu(const XieluArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"xielu", args.x.dtype(), args.x.rows(), 0, bytes_of(args.x), bytes_of(args.out)}, stream);
  }
  void causal_conv(const CausalConvArgs& args, device::Stream& stream) override {
    validate(args);
    const auto [rows, touched] = rows_of(args.items);
    const int64_t row_bytes = args.x.size(1) * size_of(DType::fp32);
    const int64_t tails = touched * args.kept_rows() * row_bytes;
    tell({"causal_conv", DType::fp32, rows, 0,
          rows * row_bytes + bytes_of(args.weight) + bytes_of(args.bias) + tails,
          rows * row_bytes + tails},
         stream);
  }
  void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"recurrence_gates", args.a.dtype(), args.a.rows(), 0,
          bytes_of(args.a) + bytes_of(args.b) + bytes_of(args.rate) + bytes_of(args.bias),
          bytes_of(args.decay) + bytes_of(args.strength)},
         stream);
  }
  RecurrencePace recurrence_pace(int64_t key_dim, int64_t value_dim,
                                 const device::Stream& /*stream*/) const override {
    return traits_.recurrence_pace ? traits_.recurrence_pace(key_dim, value_dim) : RecurrencePace();
  }
  /// A row takes each element of a state three times: it is read by the key where it is corrected, it
  /// changes, and it is read by the query.
  void recurrence(const RecurrenceArgs& args, device::Stream& stream) override {
    validate(args);
    const auto [rows, touched] = rows_of(args.items);
    const int64_t of_state = args.states.row_elements();
    const int64_t states = touched * of_state * size_of(DType::fp32);
    const int times = 1 + (args.corrects ? 1 : 0) + (args.out ? 1 : 0);
    const int64_t row_elements = (args.out ? 2 : 1) * args.k.row_elements() +
                                 (args.v ? args.v.row_elements() : 0) + 2 * args.heads();
    const bool chunks = traits_.takes_chunks && traits_.takes_chunks(args);
    const double flops =
        chunks ? static_cast<double>(rows) * gpu_chunk_flops(args.heads(), args.key_heads(),
                                                             args.key_dim(), args.value_dim(),
                                                             args.corrects)
               : 2.0 * times * static_cast<double>(rows) * static_cast<double>(of_state);
    tell({"recurrence", DType::fp32, rows, flops,
          states + rows * row_elements * size_of(DType::fp32) + bytes_of(args.skip),
          states + bytes_of(args.out), chunks ? args.products : DType::fp32,
          static_cast<double>(args.key_dim()), args.heads() * args.value_dim(),
          touched > 0 ? static_cast<double>(rows) / static_cast<double>(touched) : 0, 0,
          most_rows(args.items), chunks ? gpu_chunk_rows : 0},
         stream);
  }
  void route(const RouteArgs& args, device::Stream& stream) override {
    validate(args);
    tell({"route", DType::fp32, args.logits.rows(), 0, bytes_of(args.logits),
          bytes_of(args.chosen) + bytes_of(args.weights)},
         stream);
  }
  /// As if each row chose its experts at random. The products' rows are those of one expert. Each
  /// pair has rows of its own between the products: x, gate, up, activated and out. Experts of fp8
  /// count as widened, as they are where no library multiplies them by fp8 (kernels/cuda.md).
  void experts(const ExpertsArgs& args, device::Stream& stream) override {
    validate(args);
    const auto [pairs, touched] = work_of(args, std::ssize(args.experts));
    const Expert& each = args.experts.front();
    const int64_t ffn = each.gate.rows(), hidden = args.x.size(1);
    const double between =
        pairs * static_cast<double>(args.x.row_elements() * size_of(args.x.dtype()) +
                                    3 * ffn * size_of(DType::fp32) + hidden * size_of(DType::fp32));
    tell({"experts", each.gate.dtype(),
          pairs == 0 ? 0 : static_cast<int64_t>(std::ceil(pairs / touched)),
          6 * pairs * static_cast<double>(hidden) * static_cast<double>(ffn),
          bytes_of(args.x) + bytes_of(args.chosen) + bytes_of(args.weights) +
              std::llround(touched * static_cast<double>(bytes_of(each)) + between),
          bytes_of(args.y) + std::llround(between),
          each.gate.dtype() == DType::fp8
              ? operand_type(DType::fp8)
              : operands_of(args.x.dtype(), each.gate.dtype(), args.row_invariant),
          static_cast<double>(hidden), ffn, touched > 0 ? pairs / touched : 0},
         stream);
  }
  void sample(const SamplingArgs& args, device::Stream& stream) override {
    validate(args);
    std::fill(args.tokens.begin(), args.tokens.end(), 0);
    fill_logprobs(args);
    tell({"sample", args.logits.dtype(), args.logits.rows(), 0, bytes_of(args.logits), 0}, stream);
  }
  void log_probs(const LogProbsArgs& args, device::Stream& stream) override {
    validate(args);
    fill_logprobs(args);
    tell({"log_probs", args.logits.dtype(), args.logits.rows(), 0, bytes_of(args.logits), 0},
         stream);
  }
  void shortlist(const ShortlistArgs& args, device::Stream& stream) override {
    validate(args);
    const int64_t part = args.logits.size(1);
    std::fill(args.log_sums.begin(), args.log_sums.end(), std::log(static_cast<double>(part)));
    for (size_t i = 0; i < args.candidates.size(); ++i) {
      const auto next =
          static_cast<int32_t>(args.first_token + static_cast<int64_t>(i) % args.num_candidates);
      args.candidates[i] = {args.wanted.empty() ? next : wanted(args, i), 0, 0};
    }
    for (size_t i = 0; i < args.tops.size(); ++i)
      args.tops[i] = {
          static_cast<int32_t>(args.first_token + static_cast<int64_t>(i) % args.num_top), 0};
    tell({"shortlist", args.logits.dtype(), args.logits.rows(), 0, bytes_of(args.logits), 0},
         stream);
  }

 private:
  /// An op without rows reads nothing.
  void tell(OpWork work, device::Stream& stream) {
    if (work.rows == 0) work.bytes_read = work.bytes_written = 0;
    if (on_op_) on_op_(work);
    stream.poll();
  }

  /// Rows of fp32 are rounded to the type that the weights are multiplied as.
  DType operands_of(DType x, DType weight, RowInvariant row_invariant) const {
    if (weight == DType::fp8) return DType::fp8;
    return x != DType::fp32 || row_invariant == RowInvariant::yes ? x : operand_type(weight);
  }

  /// The token where the part of the vocabulary has it.
  static int32_t wanted(const ShortlistArgs& args, size_t row) {
    const int32_t token = args.wanted[row];
    return token >= args.first_token && token < args.first_token + args.logits.size(1) ? token
                                                                                       : no_token;
  }

  template <typename Args>
  static void fill_logprobs(const Args& args) {
    if (args.logits.rows() == 0) return;
    const float each = -std::log(static_cast<float>(args.logits.size(1)));
    std::fill(args.token_logprobs.begin(), args.token_logprobs.end(), each);
    std::fill(args.top_logprobs.begin(), args.top_logprobs.end(), each);
    for (size_t i = 0; i < args.top_tokens.size(); ++i)
      args.top_tokens[i] = static_cast<int32_t>(static_cast<int64_t>(i) % args.num_top);
  }

  std::function<void(const OpWork&)> on_op_;
  BackendTraits traits_;
};

}  // namespace

std::unique_ptr<Backend> make_phantom_backend(std::function<void(const OpWork&)> on_op,
                                              BackendTraits traits) {
  return std::make_unique<PhantomBackend>(std::move(on_op), std::move(traits));
}

}  // namespace pecia::kernels
