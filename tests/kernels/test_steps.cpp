// SPDX-License-Identifier: Apache-2.0
/// Steps (kernels::Step) of the CUDA backend's kernels on a device whose work is done late: the
/// same numbers as without them, and the same work is recognised as such.

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "lib/base/device/buffer.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/tensors.hpp"
#include "tests/support/late_stream.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

using device::Buffer;
using device::Memory;

/// A layer's beginning for one token after another: looked up, normed, multiplied, cached,
/// attended.
class Decoder {
 public:
  static constexpr int64_t hidden = 32, head_dim = 16, heads = 2, vocab = 50, capacity = 128;

  Decoder() {
    upload(table_, Tensor::random({vocab, hidden}, DType::bf16, 1));
    upload(norm_, Tensor::random({hidden}, DType::bf16, 2));
    upload(weight_, Tensor::random({hidden, hidden}, DType::bf16, 3));
  }

  LateStream& stream() { return dynamic_cast<LateStream&>(*stream_); }

  /// Attention's output for a token at a position, whose keys before it are cached.
  std::vector<float> decode(int32_t token, int64_t position, bool as_step) {
    tokens_ = {token};
    positions_ = {position};
    const TensorView x = x_.tensor(DType::fp32, {1, hidden});
    const TensorView normed = normed_.tensor(DType::bf16, {1, hidden});
    const TensorView k = k_.tensor(DType::fp32, {1, heads, head_dim});
    const TensorView cache = cache_.tensor(DType::bf16, {heads, capacity, head_dim});
    const TensorView lse = lse_.tensor(DType::fp32, {1, heads});
    runs_ = {{0, capacity * head_dim, position, 0},
             {position * head_dim, capacity * head_dim, 1, position + (hides_last_key_ ? 1 : 0)}};
    {
      std::optional<kernels::Step> step;
      if (as_step) step.emplace(*backend_, *stream_);
      backend_->embedding({table_.tensor(DType::bf16, {vocab, hidden}), tokens_, x}, *stream_);
      backend_->rms_norm({x, norm_.tensor(DType::bf16, {hidden}), 1e-5f, normed}, *stream_);
      backend_->rms_norm({x, norm_.tensor(DType::bf16, {hidden}), 1e-5f, x}, *stream_);
      backend_->linear(
          {x, weight_.tensor(DType::bf16, {hidden, hidden}), {}, k.reshape({1, hidden})}, *stream_);
      if (sends_) send_keys(k);
      if (grows_) {  // memory that held work names is given up for more
        out_.reserve(*grows_);
        grows_.reset();
      }
      backend_->kv_store({k, positions_, cache}, *stream_);
      backend_->attention({.q = k,
                           .query_positions = positions_,
                           .items = items_,
                           .runs = runs_,
                           .keys = {cache.data(), cache.data()},
                           .kv_dtype = DType::bf16,
                           .num_kv_heads = heads,
                           .scale = 0.25f,
                           .out = out_.tensor(DType::fp32, {1, heads, head_dim}),
                           .lse = lse},
                          *stream_);
      if (step) step->end();
    }
    const TensorView result = out_.tensor(DType::fp32, {1, heads, head_dim});
    std::vector<float> values(hidden);
    device_->copy(values.data(), result.data(), hidden * 4, *stream_);
    stream_->synchronize();
    return values;
  }
  /// Between the ops of each token its keys travel, on a stream of their own, and come back before
  /// they are cached.
  void send_between_ops() { sends_ = true; }
  void grow_in_next(int64_t bytes) { grows_ = bytes; }
  void hide_last_key() { hides_last_key_ = true; }

 private:
  void send_keys(const TensorView& k) {
    const TensorView there = travelled_.tensor(DType::fp32, {1, hidden});
    ready_->record(*stream_);
    ready_->make_wait(*sending_);
    device_->copy(there.data(), k.data(), hidden * 4, *sending_);
    device_->zero(k.data(), hidden * 4, *sending_);
    device_->copy(k.data(), there.data(), hidden * 4, *sending_);
    sent_->record(*sending_);
    sent_->make_wait(*stream_);
  }
  void upload(Buffer& to, Tensor from) {
    const TensorView view = from.view();
    const int64_t bytes = view.elements() * size_of(view.dtype());
    to.reserve(bytes);
    device_->copy(to.data(), view.data(), bytes, *stream_);
    stream_->synchronize();
  }
  Buffer buffer() { return {*device_, Memory::device}; }

  std::unique_ptr<device::Device> device_ = make_separate_device();
  std::unique_ptr<device::Stream> stream_ = device_->make_stream(),
                                  sending_ = device_->make_stream();
  std::unique_ptr<device::Event> ready_ = device_->make_event(), sent_ = device_->make_event();
  std::unique_ptr<kernels::Backend> backend_ = make_emulated_backend(*device_);
  Buffer table_ = buffer(), norm_ = buffer(), weight_ = buffer(), x_ = buffer(), normed_ = buffer(),
         k_ = buffer(), cache_ = buffer(), out_ = buffer(), lse_ = buffer(), travelled_ = buffer();
  std::vector<int32_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<kernels::KeyRun> runs_;
  const std::vector<kernels::AttentionItem> items_ = {{0, 1, 0, 2}};
  bool hides_last_key_ = false, sends_ = false;
  std::optional<int64_t> grows_;
};

TEST(Steps, GiveTheSameNumbersAndAreRecognised) {
  Decoder plain, stepping;
  constexpr int64_t count = 60;
  for (int64_t position = 0; position < count; ++position) {
    const auto token = static_cast<int32_t>(7 * position % Decoder::vocab);
    EXPECT_EQ(stepping.decode(token, position, true), plain.decode(token, position, false))
        << position;
  }
  EXPECT_EQ(plain.stream().graph_counts().launched, 0);
  EXPECT_EQ(stepping.stream().graph_counts().launched, count - 1);
  EXPECT_EQ(stepping.stream().graph_counts().made, 1);
}

TEST(Steps, AreGraphsBeforeAndAfterATransfer) {
  Decoder plain, stepping;
  stepping.send_between_ops();
  constexpr int64_t count = 60;
  for (int64_t position = 0; position < count; ++position) {
    const auto token = static_cast<int32_t>(7 * position % Decoder::vocab);
    EXPECT_EQ(stepping.decode(token, position, true), plain.decode(token, position, false))
        << position;
  }
  EXPECT_EQ(stepping.stream().graph_counts().launched, 2 * (count - 1));
  EXPECT_EQ(stepping.stream().graph_counts().made, 2);
  EXPECT_EQ(stepping.stream().num_graphs(), 2u);
}

TEST(Steps, MemoryThatIsGivenUpWithinOneIsUsedBefore) {
  Decoder plain, stepping;
  for (int64_t position = 0; position < 12; ++position) {
    if (position % 3 == 2) {
      plain.grow_in_next(4096 * position);
      stepping.grow_in_next(4096 * position);
    }
    EXPECT_EQ(stepping.decode(3, position, true), plain.decode(3, position, false)) << position;
  }
}

TEST(Steps, WhatTheySentIsSentAnewAfterThem) {
  Decoder plain, stepping;
  for (int64_t position = 0; position < 5; ++position) {
    plain.decode(static_cast<int32_t>(3 + position), position, false);
    stepping.decode(static_cast<int32_t>(3 + position), position, true);
  }
  plain.hide_last_key();  // other positions in the same memory
  stepping.hide_last_key();
  EXPECT_EQ(stepping.decode(7, 4, false), plain.decode(7, 4, false));
}

/// Attention of a batch of sequences that decode, in two layers: their lengths are random, and one
/// that has ended gives way to another. The keys are there from the beginning.
class Batch {
 public:
  static constexpr int64_t sequences = 3, slots = 1000, head_dim = 16;

  Batch() {
    for (Buffer* const buffer : {&k_[0], &k_[1], &q_}) {
      Tensor values = Tensor::random({sequences * slots, head_dim}, DType::fp32, seed_++);
      buffer->reserve(values.view().elements() * 4);
      device_->copy(buffer->data(), values.view().data(), values.view().elements() * 4, *stream_);
    }
    stream_->synchronize();
  }

  device::GraphCounts counts() const { return dynamic_cast<LateStream&>(*stream_).graph_counts(); }

  /// The outputs of the second layer.
  std::vector<float> decode(const std::vector<int64_t>& lengths, bool as_step) {
    positions_.clear(), runs_.clear();
    for (int64_t i = 0; i < sequences; ++i) {
      positions_.push_back(lengths[i] - 1);
      runs_.push_back({i * slots * head_dim, sequences * slots * head_dim, lengths[i], 0});
    }
    const TensorView out = out_.tensor(DType::fp32, {sequences, 1, head_dim});
    {
      std::optional<kernels::Step> step;
      if (as_step) step.emplace(*backend_, *stream_);
      for (const int layer : {0, 1, 0, 1})
        backend_->attention({.q = q_.tensor(DType::fp32, {sequences, 1, head_dim}),
                             .query_positions = positions_,
                             .items = items_,
                             .runs = runs_,
                             .keys = {k_[layer].data(), k_[layer].data()},
                             .kv_dtype = DType::fp32,
                             .num_kv_heads = 1,
                             .scale = 0.25f,
                             .out = out,
                             .lse = lse_.tensor(DType::fp32, {sequences, 1})},
                            *stream_);
      if (step) step->end();
    }
    std::vector<float> values(sequences * head_dim);
    device_->copy(values.data(), out.data(), sequences * head_dim * 4, *stream_);
    stream_->synchronize();
    return values;
  }

 private:
  Buffer buffer() { return {*device_, Memory::device}; }

  std::unique_ptr<device::Device> device_ = make_separate_device();
  std::unique_ptr<device::Stream> stream_ = device_->make_stream();
  std::unique_ptr<kernels::Backend> backend_ = make_emulated_backend(*device_);
  uint64_t seed_ = 1;
  Buffer k_[2] = {buffer(), buffer()}, q_ = buffer(), out_ = buffer(), lse_ = buffer();
  std::vector<int64_t> positions_;
  std::vector<kernels::KeyRun> runs_;
  const std::vector<kernels::AttentionItem> items_ = {{0, 1, 0, 1}, {1, 1, 1, 1}, {2, 1, 2, 1}};
};

/// What the graphs name stays where it is while sequences of any lengths grow, come and go.
TEST(Steps, OfRandomLengthsAreTheSameGraphs) {
  Batch batch;
  std::mt19937_64 random(3);
  const auto draw = [&] { return std::uniform_int_distribution<int64_t>(1, 90)(random); };
  std::vector<int64_t> lengths = {draw(), draw(), draw()}, left = {40, 70, 100};
  constexpr int steps = 100;
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> found = batch.decode(lengths, true);
    if (step % 20 == 0) {
      EXPECT_EQ(found, batch.decode(lengths, false)) << step;
    }
    for (size_t i = 0; i < lengths.size(); ++i)
      if (++lengths[i]; --left[i] == 0) lengths[i] = draw(), left[i] = 50;
  }
  EXPECT_EQ(batch.counts().launched + batch.counts().piecemeal, steps);
  EXPECT_LE(batch.counts().slow_share(), 0.05);
}

TEST(Steps, OneThatIsNotEndedIsForgotten) {
  Decoder decoder;
  const std::vector<float> before = decoder.decode(5, 0, true);
  const auto device = make_separate_device();
  const auto stream = device->make_stream();
  const auto backend = make_emulated_backend(*device);
  Buffer x(*device, Memory::device);
  const TensorView view = x.tensor(DType::fp32, {1, 4});
  device->zero(view.data(), 16, *stream);
  {
    const kernels::Step step(*backend, *stream);
    device->zero(view.data(), 1 << 30, *stream);  // would touch what is not there
  }
  stream->synchronize();
  EXPECT_EQ(decoder.decode(5, 0, true), before);
}

}  // namespace
}  // namespace pecia::test
