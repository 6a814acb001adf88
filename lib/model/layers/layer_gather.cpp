// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/layer_gather.hpp"

#include "lib/base/core/codes.hpp"

namespace pecia::model {

using report::Kind;
using report::ScopedSpan;

namespace {

constexpr int64_t alignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// A tensor of fp32 as wide as `like`.
TensorView with_rows(const TensorView& like, const std::byte* data, int64_t rows) {
  return like.rank() == 1 ? TensorView(data, DType::fp32, {rows})
                          : TensorView(data, DType::fp32, {rows, like.size(1)});
}

/// Whether ranks hold parts of matrices of this kind. Experts that are dealt out stay where they are.
bool is_cut(MatrixKind kind, parallel::WeightCut cut) {
  const CutUnit unit = role_of(kind).unit;
  return !is_whole_everywhere(unit) && !(unit == CutUnit::expert_ffn && cut.deals_experts());
}

}  // namespace

LayerGather::LayerGather(const ModelConfig& config, const WeightViews& weights,
                         const attention::ReplicaGroups& groups, const attention::Compute& compute)
    : config_(config),
      weights_(weights),
      group_(*groups.tp),
      collectives_(group_.make_collectives(groups.tp_labels, comm::SumOrder::any)),
      compute_(compute),
      slots_{{compute.buffer(), compute.buffer(), nullptr},
             {compute.buffer(), compute.buffer(), nullptr}} {
  PECIA_CHECK(weights.part.count == group_.size(), "weights cut in {} for {} ranks",
              weights.part.count, group_.size());
}

/// The pieces of this rank's part. They are the same on every rank of the group, because all parts
/// have equal shapes.
LayerGather::Layout LayerGather::layout_of(int64_t index) const {
  Layout layout;
  int64_t& block_bytes = layout.block_bytes;
  weights_.layers[index].for_each_matrix([&](MatrixKind kind, const LinearWeight& weight) {
    if (!is_cut(kind, weights_.part)) return;
    const LinearWeight::Part& first = weight.parts.front();
    const DType dtype = first.weight.dtype();
    const bool has_bias = role_of(kind).has_bias(config_);
    Piece piece{&weight, weight.out(), first.weight.size(1), dtype, has_bias, block_bytes, 0, 0};
    if (first.scales) piece.row_scales = first.scales.row_elements();
    piece.bias_offset = piece.offset + aligned(piece.rows * piece.columns * size_of(dtype));
    piece.scales_offset =
        piece.bias_offset + (has_bias ? aligned(piece.rows * size_of(DType::fp32)) : 0);
    block_bytes =
        piece.scales_offset + aligned(piece.rows * piece.row_scales * size_of(scale_type(dtype)));
    layout.matrices.push_back(piece);
  });
  if (!weights_.layers[index].recurrent) return layout;
  RecurrentWeights recurrent = *weights_.layers[index].recurrent;
  recurrent.for_each_cut_vector([&](CutUnit, const TensorView& vector) {
    layout.vectors.push_back({vector, block_bytes});
    block_bytes += aligned(vector.elements() * size_of(DType::fp32));
  });
  return layout;
}

int64_t LayerGather::bytes_sent(int64_t index) const {
  return layout_of(index).block_bytes * (group_.size() - 1);
}

/// Packs a bias as fp32; zeros if this rank's part has none.
void LayerGather::pack_bias(const TensorView& bias, const TensorView& to) const {
  const int64_t count = to.elements();
  if (!bias) return compute_.device.zero(to.data(), count * size_of(DType::fp32), compute_.stream);
  // The bias is looked up as a table of one row, because the embedding op widens to fp32.
  static constexpr int32_t row[] = {0};
  compute_.backend.embedding({bias.reshape({1, count}), row, to.reshape({1, count}), 0},
                             compute_.stream);
}

void LayerGather::pack(const Layout& layout, std::byte* to) const {
  for (const VectorPiece& piece : layout.vectors)
    compute_.copy(piece.held, with_rows(piece.held, to + piece.offset, piece.held.rows()));
  for (const Piece& piece : layout.matrices) {
    const LinearWeight::Part packed = part_at(piece, to);
    int64_t row = 0;
    for (const LinearWeight::Part& part : piece.held->parts) {
      const int64_t rows = part.weight.rows();
      compute_.copy(part.weight, packed.weight.slice_rows(row, rows));
      if (piece.has_bias) pack_bias(part.bias, packed.bias.slice_rows(row, rows));
      if (part.scales) compute_.copy(part.scales, packed.scales.slice_rows(row, rows));
      row += rows;
    }
  }
}

void LayerGather::start(int64_t index) {
  if (index >= config_.layers) return;
  const Layout layout = layout_of(index);
  const int64_t block_bytes = layout.block_bytes;
  Slot& slot = slots_[index % 2];
  slot.memory.reserve(block_bytes * group_.size());
  std::vector<std::span<std::byte>> blocks;
  for (int rank = 0; rank < group_.size(); ++rank)
    blocks.emplace_back(slot.memory.as<std::byte>() + rank * block_bytes, block_bytes);
  {
    const ScopedSpan span(compute_.recorder, "pack_weights", Kind::compute, block_bytes);
    pack(layout, blocks[group_.rank()].data());
  }
  slot.transfer = collectives_->start_all_gather(blocks);
}

void LayerGather::begin_pass() {
  start(0);
}

LinearWeight::Part LayerGather::part_at(const Piece& piece, std::byte* block) {
  LinearWeight::Part part;
  part.weight = TensorView(block + piece.offset, piece.dtype, {piece.rows, piece.columns});
  if (piece.has_bias) part.bias = TensorView(block + piece.bias_offset, DType::fp32, {piece.rows});
  std::byte* const scales = block + piece.scales_offset;
  part.factor = piece.held->parts.front().factor;  // every rank has a part of the same matrix
  const TensorView& held = piece.held->parts.front().scales;
  if (!held) return part;
  part.scales = held.rank() == 2 ? TensorView(scales, held.dtype(), {piece.rows, piece.row_scales})
                                 : TensorView(scales, held.dtype(), {piece.rows});
  return part;
}

/// Copies the ranks' rows one after the other. Neighbouring ranks may share a key head.
void LayerGather::join_vectors(const Layout& layout, Slot& slot, RecurrentWeights& whole) {
  int64_t bytes = 0;
  const auto bytes_of = [&](const TensorView& held, CutUnit unit) {
    const int64_t rows = unit_part(config_, unit, {}).size();
    return aligned(rows * held.row_elements() * size_of(DType::fp32));
  };
  whole.for_each_cut_vector(
      [&](CutUnit unit, const TensorView& held) { bytes += bytes_of(held, unit); });
  slot.vectors.reserve(bytes);
  auto* to = slot.vectors.as<std::byte>();
  auto piece = layout.vectors.begin();
  whole.for_each_cut_vector([&](CutUnit unit, TensorView& vector) {
    const TensorView held = vector;
    vector = with_rows(held, to, unit_part(config_, unit, {}).size());
    to += bytes_of(held, unit);
    int64_t gathered = 0;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const parallel::RowRange part = unit_part(config_, unit, {group_.size(), rank});
      if (part.begin < gathered) continue;
      gathered = part.end;
      const auto* const block = slot.memory.as<std::byte>() + rank * layout.block_bytes;
      compute_.copy(with_rows(held, block + piece->offset, part.size()),
                    vector.slice_rows(part.begin, part.size()));
    }
    ++piece;
  });
}

LayerWeights LayerGather::layer(int64_t index) {
  start(index + 1);
  Slot& slot = slots_[index % 2];
  {
    const ScopedSpan span(compute_.recorder, "gather_weights", Kind::comm, bytes_sent(index));
    slot.transfer->wait();
  }
  LayerWeights whole = weights_.layers[index];  // supplies what is not cut
  const Layout layout = layout_of(index);
  const int64_t block_bytes = layout.block_bytes;
  if (whole.recurrent) join_vectors(layout, slot, *whole.recurrent);
  auto piece = layout.matrices.begin();
  whole.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
    if (!is_cut(kind, weights_.part)) return;
    const MatrixRole& role = role_of(kind);
    const bool adds = role.side == MatrixRole::Side::inputs;
    LinearWeight weight;
    if (adds) weight.blocks = LinearWeight::Blocks::columns;
    int64_t gathered = 0;  // rows or columns so far; neighbouring ranks may share a KV head
    for (int rank = 0; rank < group_.size(); ++rank) {
      const parallel::RowRange part = unit_part(config_, role.unit, {group_.size(), rank}, index);
      if (part.begin < gathered) continue;
      gathered = part.end;
      weight.parts.push_back(part_at(*piece, slot.memory.as<std::byte>() + rank * block_bytes));
      if (adds && rank > 0) weight.parts.back().bias = {};
    }
    matrix = std::move(weight);
    ++piece;
  });
  return whole;
}

}  // namespace pecia::model
