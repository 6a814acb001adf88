// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/core/random.hpp"
#include "lib/model/weights/weight_upload.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::model {
namespace {

constexpr int64_t rows = 13, columns = int64_t{1} << 20;  // four rows are a piece: four pieces
constexpr int64_t gap = 3;                                // elements between rows of the host

/// To a device whose work is done when it is waited for, so that a piece filled too early shows.
struct Upload : testing::Test {
  Upload() {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(uniform(1, i)) - 0.5f;
  }
  std::vector<float> back(const device::Buffer& buffer, int64_t count) {
    std::vector<float> elements(count);
    device->copy(elements.data(), buffer.data(), count * 4, *stream);
    stream->synchronize();
    return elements;
  }

  std::vector<float> values = std::vector<float>(rows * (columns + gap));
  TensorView host =
      TensorView(values.data(), DType::fp32, {rows, columns + gap}).slice_columns(0, columns);
  std::unique_ptr<device::Device> device = test::make_separate_device();
  std::unique_ptr<device::Stream> stream = device->make_stream();
};

TEST_F(Upload, CopiesByPiece) {
  device::Buffer to(*device, device::Memory::device, rows * columns * 4);
  WeightUpload upload(*device, *stream, columns * 4);
  upload.copy(host, to.data());
  const std::vector<float> found = back(to, rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (const int64_t i : {int64_t{0}, columns / 2, columns - 1})
      EXPECT_EQ(found[row * columns + i], values[row * (columns + gap) + i]) << row << ", " << i;
}

TEST_F(Upload, RoundsByPiece) {
  device::Buffer codes(*device, device::Memory::device), scales(*device, device::Memory::device),
      sums(*device, device::Memory::device);
  const auto backend = test::make_emulated_backend(*device);
  WeightUpload upload(*device, *stream, columns * 4);
  upload.quantize(host,
                  {{},
                   codes.tensor(DType::fp8, {rows, columns}),
                   scales.tensor(DType::fp32, {rows}),
                   sums.tensor(DType::fp32, {rows, 2})},
                  *backend);
  std::vector<uint8_t> found(rows * columns);
  device->copy(found.data(), codes.data(), codes.bytes(), *stream);
  const std::vector<float> scale = back(scales, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (const int64_t i : {int64_t{0}, columns / 2, columns - 1}) {
      const float value = values[row * (columns + gap) + i];
      EXPECT_NEAR(fp8_to_float(found[row * columns + i]) * scale[row], value,
                  std::max(0x1p-4f * std::fabs(value), 0x1p-10f * scale[row]))
          << row << ", " << i;
    }
}

}  // namespace
}  // namespace pecia::model
