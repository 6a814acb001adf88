// SPDX-License-Identifier: Apache-2.0
/// Steps (kernels::Step) of the CUDA backend's kernels on a device whose work is done late: the
/// same numbers as without them, and the same work is recognised as such.

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "lib/device/buffer.hpp"
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
    key_positions_.resize(position + 1);
    std::iota(key_positions_.begin(), key_positions_.end(), 0);
    if (hides_last_key_) key_positions_[position] = position + 1;
    const std::vector<kernels::KeyRun> runs = {
        {cache.data(), cache.data(), capacity * head_dim, position + 1, key_positions_.data()}};
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
                           .runs = runs,
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
  std::vector<int64_t> positions_, key_positions_;
  const std::vector<kernels::AttentionItem> items_ = {{0, 1, 0, 1}};
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
  // Positions take another size in the arena every 32 tokens, and work begins with the first step.
  EXPECT_EQ(stepping.stream().graph_counts().launched, count);
  EXPECT_LE(stepping.stream().graph_counts().made, 8);
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
  EXPECT_EQ(stepping.stream().graph_counts().launched, 2 * count);
  EXPECT_LE(stepping.stream().graph_counts().made, 8);
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
