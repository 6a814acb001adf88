#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/model/device_weights.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

/// On the host's own device, where copies can be looked at.
struct OnDevice : testing::Test {
  std::unique_ptr<device::Device> device = device::make_host_device(1);
  std::unique_ptr<device::Stream> stream = device->make_stream();
  std::unique_ptr<kernels::Backend> backend = kernels::make_reference_backend();
};

void expect_copy(const LinearWeight& copy, const LinearWeight& of) {
  EXPECT_EQ(values_of(copy), values_of(of));
  ASSERT_EQ(copy.parts.size(), of.parts.size());
  for (size_t i = 0; i < of.parts.size(); ++i) {
    EXPECT_NE(copy.parts[i].weight.data(), of.parts[i].weight.data());
    EXPECT_TRUE(copy.parts[i].weight.dense());
    EXPECT_EQ(static_cast<bool>(copy.parts[i].bias), static_cast<bool>(of.parts[i].bias));
  }
}

TEST_F(OnDevice, WeightsAreDenseCopiesOfTheirPart) {
  ModelConfig config = small_model(Family::llama);
  config.attention_bias = true;
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  const Weights host = load(config, file, {}, {2, 1});
  const DeviceWeights there(host, *device, *stream, *backend);
  EXPECT_EQ(there.part, host.part);
  ASSERT_EQ(there.layers.size(), host.layers.size());
  for (size_t i = 0; i < host.layers.size(); ++i) {
    const LayerWeights &copy = there.layers[i], &of = host.layers[i];
    for (const auto member :
         {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::o,
          &LayerWeights::gate, &LayerWeights::up, &LayerWeights::down})
      expect_copy(copy.*member, of.*member);
    EXPECT_EQ(biases_of(copy.q), biases_of(of.q));
    EXPECT_EQ(first(copy.attention_norm), first(of.attention_norm));
    EXPECT_FALSE(copy.q_norm);
  }
  expect_copy(there.head, host.head);
  EXPECT_EQ(first(there.final_norm), first(host.final_norm));
  EXPECT_EQ(first(there.embedding), first(host.embedding));
  EXPECT_GE(there.bytes(), host.resident_bytes());
  EXPECT_EQ(there.bytes(), DeviceWeights::bytes_of(host));
}

TEST_F(OnDevice, TiedWeightsAreThereOnce) {
  ModelConfig config = small_model(Family::llama);
  config.tied_embeddings = true;
  CheckpointFile file = llama_file();
  file.tensors.erase("lm_head.weight");
  const DeviceWeights there(load(config, file, {}, {}), *device, *stream, *backend);
  EXPECT_EQ(there.embedding.data(), there.head.parts.front().weight.data());
}

}  // namespace
}  // namespace pecia::model
