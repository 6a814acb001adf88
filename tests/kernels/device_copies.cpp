// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device_copies.hpp"

#include <list>

#include "kernels/api/validate.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::test {
namespace {

using namespace kernels;

/// The copies of one op's tensors.
class Copies {
 public:
  Copies(device::Device& device, device::Stream& stream) : device_(device), stream_(stream) {}

  /// A view like `view` of a copy on the device. Views of the same memory share a copy, so an op in
  /// place is in place there too.
  TensorView in(const TensorView& view) {
    if (!view) return view;
    void* const data = on_device(view.data(), bytes_of(view));
    switch (view.rank()) {
      case 1:
        return {data, view.dtype(), {view.size(0)}};
      case 2:
        return TensorView(data, view.dtype(), {view.rows(), view.row_stride()})
            .slice_columns(0, view.size(1));
      case 3:  // the tests' are dense
        return {data, view.dtype(), {view.size(0), view.size(1), view.size(2)}};
      default:
        return {data, view.dtype(), {view.size(0), view.size(1), view.size(2), view.size(3)}};
    }
  }
  /// The same of a matrix of which there is one for each head, `step` elements apart.
  TensorView in_heads(const TensorView& first, int64_t heads, int64_t step) {
    const int64_t bytes = bytes_of(first) + (heads - 1) * step * size_of(first.dtype());
    return TensorView(on_device(first.data(), bytes), first.dtype(),
                      {first.rows(), first.row_stride()})
        .slice_columns(0, first.size(1));
  }
  void* on_device(const void* host, int64_t bytes) {
    for (const Copy& copy : copies_)
      if (copy.host == host && copy.bytes == bytes) return copy.buffer.data();
    Copy& copy = copies_.emplace_back(const_cast<void*>(host), bytes,
                                      device::Buffer(device_, device::Memory::device, bytes));
    device_.copy(copy.buffer.data(), host, bytes, stream_);
    return copy.buffer.data();
  }

  /// Everything back to where it came from.
  void back() {
    for (const Copy& copy : copies_)
      device_.copy(copy.host, copy.buffer.data(), copy.bytes, stream_);
    stream_.synchronize();
  }

 private:
  struct Copy {
    void* host;
    int64_t bytes;
    device::Buffer buffer;
  };

  /// From the first element to the last; the tests' tensors have as much after the last row as
  /// between rows, but a column slice need not.
  static int64_t bytes_of(const TensorView& view) {
    if (view.elements() == 0) return 0;
    return ((view.rows() - 1) * view.row_stride() + view.row_elements()) * size_of(view.dtype());
  }

  device::Device& device_;
  device::Stream& stream_;
  std::list<Copy> copies_;
};

/// Of all that the runs name.
void copy_keys(Copies& copies, StoredKeys& keys, std::span<const KeyRun> runs, int64_t num_kv_heads,
               int64_t head_dim, DType dtype) {
  int64_t elements = 0;
  for (const KeyRun& run : runs)
    if (run.num_keys > 0)
      elements = std::max(
          elements, run.offset + (num_kv_heads - 1) * run.head_stride + run.num_keys * head_dim);
  if (elements == 0) return;
  const auto copy = [&](const auto*& data, int64_t bytes) {
    using Data = std::remove_reference_t<decltype(data)>;
    if (data != nullptr) data = static_cast<Data>(copies.on_device(data, bytes));
  };
  copy(keys.k, elements * size_of(dtype));
  copy(keys.v, elements * size_of(dtype));
  copy(keys.k_scales, elements / head_dim * size_of(DType::fp32));
  copy(keys.v_scales, elements / head_dim * size_of(DType::fp32));
}

void copy_parts(Copies& copies, std::vector<PickedParts>& all) {
  for (PickedParts& parts : all) {
    parts.out = copies.in(parts.out), parts.lse = copies.in(parts.lse);
    parts.rows = copies.in(parts.rows);
  }
}

class BackendOnCopies : public Backend {
 public:
  BackendOnCopies(device::Device& device, std::unique_ptr<Backend> backend)
      : device_(device), backend_(std::move(backend)), stream_(device.make_stream()) {}

  std::string_view name() const override { return backend_->name(); }
  DType operand_type(DType weight) const override { return backend_->operand_type(weight); }
  DType query_type(DType keys, int64_t head_dim) const override {
    return backend_->query_type(keys, head_dim);
  }
  std::string expert_library() const override { return backend_->expert_library(); }
  bool rounds_products() const override { return backend_->rounds_products(); }
  bool gains_by_fewer_ops() const override { return backend_->gains_by_fewer_ops(); }

  void add(const AddArgs& args, device::Stream&) override {
    run(&Backend::add, args, [](Copies& copies, AddArgs& there) {
      there.x = copies.in(there.x), there.y = copies.in(there.y);
    });
  }
  void embedding(const EmbeddingArgs& args, device::Stream&) override {
    run(&Backend::embedding, args, [](Copies& copies, EmbeddingArgs& there) {
      there.table = copies.in(there.table), there.out = copies.in(there.out);
    });
  }
  void linear(const LinearArgs& args, device::Stream&) override {
    run(&Backend::linear, args, [](Copies& copies, LinearArgs& there) {
      there.x = copies.in(there.x), there.weight = copies.in(there.weight);
      there.bias = copies.in(there.bias), there.y = copies.in(there.y);
      there.weight_scales = copies.in(there.weight_scales);
    });
  }
  void head_linear(const HeadLinearArgs& args, device::Stream&) override {
    run(&Backend::head_linear, args, [](Copies& copies, HeadLinearArgs& there) {
      there.x = copies.in_heads(there.x, there.heads, there.x_step);
      there.y = copies.in_heads(there.y, there.heads, there.y_step);
      there.weight = copies.in(there.weight);
    });
  }
  void quantize_rows(const QuantizeRowsArgs& args, device::Stream&) override {
    run(&Backend::quantize_rows, args, [](Copies& copies, QuantizeRowsArgs& there) {
      there.x = copies.in(there.x), there.codes = copies.in(there.codes);
      there.scales = copies.in(there.scales), there.square_sums = copies.in(there.square_sums);
    });
  }
  void mask_tokens(const MaskTokensArgs& args, device::Stream&) override {
    run(&Backend::mask_tokens, args,
        [](Copies& copies, MaskTokensArgs& there) { there.logits = copies.in(there.logits); });
  }
  void cast(const CastArgs& args, device::Stream&) override {
    run(&Backend::cast, args, [](Copies& copies, CastArgs& there) {
      there.x = copies.in(there.x), there.out = copies.in(there.out);
    });
  }
  void square_sums(const SquareSumsArgs& args, device::Stream&) override {
    run(&Backend::square_sums, args, [](Copies& copies, SquareSumsArgs& there) {
      there.x = copies.in(there.x), there.sums = copies.in(there.sums);
    });
  }
  void sum_rows(const SumRowsArgs& args, device::Stream&) override {
    run(&Backend::sum_rows, args, [](Copies& copies, SumRowsArgs& there) {
      there.x = copies.in(there.x), there.out = copies.in(there.out);
    });
  }
  void rms_norm(const RmsNormArgs& args, device::Stream&) override {
    run(&Backend::rms_norm, args, [](Copies& copies, RmsNormArgs& there) {
      there.x = copies.in(there.x), there.weight = copies.in(there.weight);
      there.out = copies.in(there.out), there.marks = copies.in(there.marks);
      there.squares = copies.in(there.squares);
    });
  }
  void rope(const RopeArgs& args, device::Stream&) override {
    run(&Backend::rope, args, [](Copies& copies, RopeArgs& there) {
      there.x = copies.in(there.x), there.out = copies.in(there.out);
      there.cos = copies.in(there.cos), there.sin = copies.in(there.sin);
    });
  }
  void rope_tables(const RopeTablesArgs& args, device::Stream&) override {
    run(&Backend::rope_tables, args, [](Copies& copies, RopeTablesArgs& there) {
      there.cos = copies.in(there.cos), there.sin = copies.in(there.sin);
    });
  }
  void kv_store(const KvStoreArgs& args, device::Stream&) override {
    run(&Backend::kv_store, args, [](Copies& copies, KvStoreArgs& there) {
      there.x = copies.in(there.x), there.cache = copies.in(there.cache);
      there.scales = copies.in(there.scales);
    });
  }
  void rotate_and_store(const RotateAndStoreArgs& args, device::Stream&) override {
    run(&Backend::rotate_and_store, args, [](Copies& copies, RotateAndStoreArgs& there) {
      for (TensorView* view : {&there.q, &there.k, &there.v, &there.q_norm, &there.k_norm,
                               &there.cos, &there.sin, &there.q_out, &there.keys.vectors,
                               &there.keys.scales, &there.values.vectors, &there.values.scales})
        *view = copies.in(*view);
    });
  }
  void attention(const AttentionArgs& args, device::Stream&) override {
    run(&Backend::attention, args, [&](Copies& copies, AttentionArgs& there) {
      there.q = copies.in(there.q), there.out = copies.in(there.out);
      there.lse = copies.in(there.lse);
      copy_keys(copies, there.keys, there.runs, there.num_kv_heads, there.q.size(2),
                there.kv_dtype);
    });
  }
  void column_sums(const ColumnSumsArgs& args, device::Stream&) override {
    run(&Backend::column_sums, args, [](Copies& copies, ColumnSumsArgs& there) {
      there.q = copies.in(there.q), there.lse = copies.in(there.lse);
      there.sums = copies.in(there.sums);
      copy_keys(copies, there.keys, {&there.run, 1}, there.num_kv_heads, there.q.size(2),
                there.kv_dtype);
    });
  }
  void merge(const MergeArgs& args, device::Stream&) override {
    run(&Backend::merge, args, [](Copies& copies, MergeArgs& there) {
      there.part_out = copies.in(there.part_out), there.part_lse = copies.in(there.part_lse);
      there.out = copies.in(there.out), there.lse = copies.in(there.lse);
    });
  }
  void gated_activation(const GatedActivationArgs& args, device::Stream&) override {
    run(&Backend::gated_activation, args, [](Copies& copies, GatedActivationArgs& there) {
      there.gate = copies.in(there.gate), there.up = copies.in(there.up);
      there.out = copies.in(there.out);
    });
  }
  void xielu(const XieluArgs& args, device::Stream&) override {
    run(&Backend::xielu, args, [](Copies& copies, XieluArgs& there) {
      there.x = copies.in(there.x), there.out = copies.in(there.out);
    });
  }
  void soft_cap(const SoftCapArgs& args, device::Stream&) override {
    run(&Backend::soft_cap, args,
        [](Copies& copies, SoftCapArgs& there) { there.x = copies.in(there.x); });
  }
  void causal_conv(const CausalConvArgs& args, device::Stream&) override {
    run(&Backend::causal_conv, args, [](Copies& copies, CausalConvArgs& there) {
      for (TensorView* view : {&there.x, &there.weight, &there.bias, &there.tails, &there.out})
        *view = copies.in(*view);
    });
  }
  void recurrence_gates(const RecurrenceGatesArgs& args, device::Stream&) override {
    run(&Backend::recurrence_gates, args, [](Copies& copies, RecurrenceGatesArgs& there) {
      for (TensorView* view :
           {&there.a, &there.b, &there.rate, &there.bias, &there.decay, &there.strength})
        *view = copies.in(*view);
    });
  }
  void recurrence(const RecurrenceArgs& args, device::Stream&) override {
    run(&Backend::recurrence, args, [](Copies& copies, RecurrenceArgs& there) {
      for (TensorView* view : {&there.q, &there.k, &there.v, &there.decay, &there.strength,
                               &there.states, &there.out, &there.skip})
        *view = copies.in(*view);
    });
  }
  bool takes_gated_linear(const GatedLinearArgs& args) const override {
    return backend_->takes_gated_linear(args);
  }
  void gated_linear(const GatedLinearArgs& args, device::Stream&) override {
    run(&Backend::gated_linear, args, [](Copies& copies, GatedLinearArgs& there) {
      for (TensorView* view : {&there.x, &there.gate, &there.up, &there.out, &there.gate_scales,
                               &there.up_scales, &there.gate_bias, &there.up_bias})
        *view = copies.in(*view);
    });
  }
  void route(const RouteArgs& args, device::Stream&) override {
    run(&Backend::route, args, [](Copies& copies, RouteArgs& there) {
      there.logits = copies.in(there.logits);
      there.chosen = copies.in(there.chosen), there.weights = copies.in(there.weights);
      there.bias = copies.in(there.bias);
    });
  }
  void experts(const ExpertsArgs& args, device::Stream&) override {
    std::vector<Expert> experts;
    run(&Backend::experts, args, [&](Copies& copies, ExpertsArgs& there) {
      there.x = copies.in(there.x), there.y = copies.in(there.y);
      there.chosen = copies.in(there.chosen), there.weights = copies.in(there.weights);
      for (const Expert& expert : there.experts)
        experts.push_back({copies.in(expert.gate), copies.in(expert.up), copies.in(expert.down),
                           copies.in(expert.gate_scales), copies.in(expert.up_scales),
                           copies.in(expert.down_scales), copies.in(expert.gate_bias),
                           copies.in(expert.up_bias), copies.in(expert.down_bias),
                           expert.gate_factor, expert.up_factor, expert.down_factor});
      there.experts = experts;
    });
  }
  void merge_picked(const MergePickedArgs& args, device::Stream&) override {
    std::vector<PickedParts> parts(args.parts.begin(), args.parts.end());
    run(&Backend::merge_picked, args, [&](Copies& copies, MergePickedArgs& there) {
      copy_parts(copies, parts);
      there.parts = parts;
      there.out = copies.in(there.out), there.lse = copies.in(there.lse);
    });
  }
  void kept_order(const KeptOrderArgs& args, device::Stream&) override {
    run(&Backend::kept_order, args, [](Copies& copies, KeptOrderArgs& there) {
      there.importance = copies.in(there.importance), there.order = copies.in(there.order);
    });
  }
  void pick_rows(const PickRowsArgs& args, device::Stream&) override {
    std::vector<PickedRows> picks(args.picks.begin(), args.picks.end());
    run(&Backend::pick_rows, args, [&](Copies& copies, PickRowsArgs& there) {
      for (PickedRows& picked : picks)
        picked = {copies.in(picked.from), copies.in(picked.rows), copies.in(picked.to)};
      there.picks = picks;
    });
  }
  void row_need(const RowNeedArgs& args, device::Stream&) override {
    std::vector<PickedParts> always(args.always.begin(), args.always.end());
    std::vector<LearntRows> lists(args.lists.begin(), args.lists.end());
    run(&Backend::row_need, args, [&](Copies& copies, RowNeedArgs& there) {
      copy_parts(copies, always);
      for (LearntRows& list : lists) list.rows = copies.in(list.rows);
      there.always = always, there.lists = lists;
      there.here = copies.in(there.here), there.all = copies.in(there.all);
      there.need = copies.in(there.need);
    });
  }
  void sample(const SamplingArgs& args, device::Stream&) override {
    run(&Backend::sample, args,
        [](Copies& copies, SamplingArgs& there) { there.logits = copies.in(there.logits); });
  }
  void log_probs(const LogProbsArgs& args, device::Stream&) override {
    run(&Backend::log_probs, args,
        [](Copies& copies, LogProbsArgs& there) { there.logits = copies.in(there.logits); });
  }
  void shortlist(const ShortlistArgs& args, device::Stream&) override {
    run(&Backend::shortlist, args,
        [](Copies& copies, ShortlistArgs& there) { there.logits = copies.in(there.logits); });
  }

 private:
  template <typename Args, typename Copy>
  void run(void (Backend::*op)(const Args&, device::Stream&), const Args& args, const Copy& copy) {
    validate(args);
    Copies copies(device_, *stream_);
    Args there = args;
    copy(copies, there);
    (backend_.get()->*op)(there, *stream_);
    copies.back();
  }

  device::Device& device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace

std::unique_ptr<Backend> run_on_copies(device::Device& device, std::unique_ptr<Backend> backend) {
  return std::make_unique<BackendOnCopies>(device, std::move(backend));
}

}  // namespace pecia::test
