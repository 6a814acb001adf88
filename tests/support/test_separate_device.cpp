// SPDX-License-Identifier: Apache-2.0
/// That the double finds what it is for.

#include <gtest/gtest.h>

#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

using device::Buffer;
using device::Memory;

struct Separate : testing::Test {
  SeparateCompute compute;
  device::Device& device = *compute.device;
  device::Stream& stream = *compute.stream;
  Buffer pinned{device, Memory::pinned, 4}, there{device, Memory::device, 4};

  int32_t fetch() {
    int32_t value = 0;
    device.copy(&value, there.data(), 4, stream);
    return value;
  }
};

TEST_F(Separate, MemoryIsNotTheHosts) {
  EXPECT_DEATH(*there.as<volatile int32_t>() = 1, "");
  device.zero(there.data(), 4, stream);
  stream.synchronize();
  EXPECT_DEATH(static_cast<void>(*there.as<volatile int32_t>()), "");
  EXPECT_EQ(fetch(), 0);
}

TEST_F(Separate, CopiesRunWhenTheHostWaits) {
  *pinned.as<int32_t>() = 5;
  device.copy(there.data(), pinned.data(), 4, stream);
  *pinned.as<int32_t>() = 6;  // too early
  EXPECT_EQ(fetch(), 6);
  *pinned.as<int32_t>() = 7;
  device.copy(pinned.data(), there.data(), 4, stream);
  EXPECT_EQ(*pinned.as<int32_t>(), 7);
  stream.synchronize();
  EXPECT_EQ(*pinned.as<int32_t>(), 6);
}

TEST_F(Separate, PageableMemoryMayChangeAtOnce) {
  int32_t value = 5;
  device.copy(there.data(), &value, 4, stream);
  value = 6;
  EXPECT_EQ(fetch(), 5);
}

TEST_F(Separate, EventsOrderStreams) {
  const auto other = device.make_stream();
  const auto filled = device.make_event();
  EXPECT_TRUE(filled->done());
  device.zero(there.data(), 4, stream);
  *pinned.as<int32_t>() = 5;
  device.copy(there.data(), pinned.data(), 4, *other);
  filled->record(*other);
  EXPECT_FALSE(filled->done());
  filled->make_wait(stream);
  device.copy(pinned.data(), there.data(), 4, stream);
  stream.synchronize();
  EXPECT_TRUE(filled->done());
  EXPECT_EQ(fetch(), 5) << "the copy of the other stream came later";
}

TEST_F(Separate, EventsTellTheTimeOfTheWork) {
  const auto other = device.make_stream();
  const auto begin = device.make_event(), filled = device.make_event(), end = device.make_event();
  begin->record(stream);
  for (int i = 0; i < 3; ++i) device.zero(there.data(), 4, *other);
  filled->record(*other);
  device.zero(there.data(), 4, stream);
  filled->make_wait(stream);
  device.zero(there.data(), 4, stream);
  end->record(stream);
  end->synchronize();
  EXPECT_DOUBLE_EQ(end->seconds_since(*begin), 4e-9 * separate_work_ns);
  EXPECT_DOUBLE_EQ(end->seconds_since(*filled), 1e-9 * separate_work_ns);
}

TEST_F(Separate, OpsKeepTheirHostArrays) {
  Buffer table(device, Memory::device), out(device, Memory::device);
  const float rows[] = {1, 2, 3};
  device.copy(table.tensor(DType::fp32, {3, 1}).data(), rows, sizeof rows, stream);
  std::vector<int32_t> tokens = {2, 0};
  const TensorView found = out.tensor(DType::fp32, {2, 1});
  compute.backend->embedding({table.tensor(DType::fp32, {3, 1}), tokens, found, 0}, stream);
  tokens = {1, 1};
  float values[2];
  device.copy(values, found.data(), sizeof values, stream);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 1);
}

}  // namespace
}  // namespace pecia::test
