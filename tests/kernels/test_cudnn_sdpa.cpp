// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/attention/sdpa.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cuda;

/// A GPU as cuDNN describes one; its numbers are those of NVIDIA's documents.
struct Gpu {
  const char* name;
  int compute_capability, multiprocessors;
  int64_t shared_bytes_per_block, l2_bytes, memory_bytes;

  std::string json() const {
    return fmt::format(
        R"({{"deviceName": "{}", "deviceVer": {}, "multiProcessorCount": {},)"
        R"( "maxSharedMemoryPerBlockOptin": {}, "l2CacheSize": {}, "totalGlobalMem": {},)"
        R"( "cudaDeviceId": 0, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535],)"
        R"( "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "warpSize": 32,)"
        R"( "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,)"
        R"( "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,)"
        R"( "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,)"
        R"( "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120}})",
        name, 10 * compute_capability, multiprocessors, shared_bytes_per_block, l2_bytes,
        memory_bytes);
  }
};
constexpr Gpu gpus[] = {
    {"NVIDIA A100-SXM4-80GB", 80, 108, 166912, int64_t{40} << 20, int64_t{80} << 30},
    {"NVIDIA H100 80GB HBM3", 90, 132, 232448, int64_t{50} << 20, int64_t{80} << 30},
    {"NVIDIA B200", 100, 148, 232448, int64_t{126} << 20, int64_t{180} << 30}};

SdpaShape shape(Mask mask, DType dtype, int64_t head_dim, int64_t rows, int64_t keys) {
  return {.dtype = dtype,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = head_dim,
          .num_rows = rows,
          .num_keys = keys,
          .kv_head_stride = (keys + 1000) * head_dim,
          .mask = mask,
          .window = mask == Mask::band ? 1024 : 0,
          .scale = 0.125f};
}

/// Kernels are compiled, by the real cuDNN and nvrtc, for GPUs that are not there; a double of the
/// driver takes them.
class CudnnSdpa : public testing::TestWithParam<Gpu> {
 protected:
  FoundSdpa found_ = find(takes_dynamic_graphs() ? SdpaGraphs::any : SdpaGraphs::static_for_each);

  /// Whether this cuDNN's attention takes graphs of dynamic shape: 9.18.1 to 9.20.
  static bool takes_dynamic_graphs() {
    const FoundSdpa found = find(SdpaGraphs::any);
    int minor = 0, patch = 0;
    const bool read =
        found.sdpa && std::sscanf(found.sdpa->name().c_str(), "cuDNN 9.%d.%d", &minor, &patch) == 2;
    return read && (minor == 19 || minor == 20 || (minor == 18 && patch >= 1));
  }
  static FoundSdpa find(SdpaGraphs graphs) {
    return find_cudnn_sdpa_without_gpu(GetParam().json(), GetParam().compute_capability, graphs);
  }
  void expect_taken(const SdpaShape& shape) {
    ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
    EXPECT_TRUE(found_.sdpa->takes(shape)) << found_.sdpa->name();
  }
};

TEST_P(CudnnSdpa, TakesEveryMaskAtLengthsThatNoTileDivides) {
  for (const Mask mask : {Mask::full, Mask::causal, Mask::band, Mask::mirror}) {
    expect_taken(shape(mask, DType::bf16, 128, 8192, 8192));
    expect_taken(shape(mask, DType::bf16, 128, 129, 131071));
  }
  expect_taken(shape(Mask::full, DType::bf16, 128, 4000, 333));  // fewer keys than rows
}

TEST_P(CudnnSdpa, TakesTheHeadSizesOfModelsInBothTypes) {
  for (const int64_t head_dim : {64, 80, 96, 128, 256})
    for (const DType dtype : {DType::bf16, DType::fp16})
      expect_taken(shape(Mask::causal, dtype, head_dim, 2048, 4096));
}

TEST_P(CudnnSdpa, UsesGraphsOfDynamicShapeWhereItMay) {
  found_ = find(SdpaGraphs::any);
  ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
  expect_taken(shape(Mask::causal, DType::bf16, 128, 2048, 4096));
  const bool is_static = found_.sdpa->name().find("static") != std::string::npos;
  EXPECT_EQ(is_static, !takes_dynamic_graphs()) << found_.sdpa->name();
}

TEST_P(CudnnSdpa, TakesEveryMaskByGraphsOfStaticShapeAndSaysSo) {
  found_ = find(SdpaGraphs::static_for_each);
  ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
  for (const Mask mask : {Mask::full, Mask::causal, Mask::band, Mask::mirror})
    expect_taken(shape(mask, DType::bf16, 128, 777, 4001));
  EXPECT_NE(found_.sdpa->name().find(" by graphs of static shape (4 of 4)"), std::string::npos)
      << found_.sdpa->name();
}

/// Of lengths that hardly another prompt has, only large ones are worth a compilation.
TEST_P(CudnnSdpa, CompilesStaticGraphsWhereTheyAreWorthIt) {
  found_ = find(SdpaGraphs::static_where_worth);
  ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
  expect_taken(shape(Mask::causal, DType::bf16, 128, 2048, 4096));
  expect_taken(shape(Mask::causal, DType::bf16, 128, 16385, 16385));
  for (const int64_t rows : {129, 777, 2048, 16383})
    EXPECT_FALSE(found_.sdpa->takes(shape(Mask::causal, DType::bf16, 128, rows, 16383))) << rows;
  EXPECT_NE(found_.sdpa->name().find(", without 4 shapes"), std::string::npos)
      << found_.sdpa->name();
}

TEST_P(CudnnSdpa, SaysWhatItRefusedFirst) {
  ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
  EXPECT_EQ(found_.sdpa->name().find("refused"), std::string::npos);
  EXPECT_FALSE(found_.sdpa->takes(shape(Mask::causal, DType::bf16, 20, 512, 512)));
  const std::string name = found_.sdpa->name();
  EXPECT_EQ(name.find("cuDNN 9."), 0u) << name;
  EXPECT_NE(name.find("refused 512 × 512, causal, heads of 20"), std::string::npos) << name;
}

TEST_P(CudnnSdpa, RefusesTensorsOfMoreElementsThanItsKernelsCount) {
  ASSERT_NE(found_.sdpa, nullptr) << found_.why_not;
  EXPECT_FALSE(found_.sdpa->takes(shape(Mask::full, DType::bf16, 128, 1000, int64_t{3} << 20)));
  EXPECT_NE(found_.sdpa->name().find("elements"), std::string::npos) << found_.sdpa->name();
}

std::string name_of_gpu(const testing::TestParamInfo<Gpu>& gpu) {
  return "sm_" + std::to_string(gpu.param.compute_capability);
}
INSTANTIATE_TEST_SUITE_P(Gpus, CudnnSdpa, testing::ValuesIn(gpus), name_of_gpu);

TEST(CudnnSdpaDescription, ThatCannotBeReadIsSaid) {
  const FoundSdpa found = find_cudnn_sdpa_without_gpu("{}", 90, SdpaGraphs::any);
  EXPECT_EQ(found.sdpa, nullptr);
  EXPECT_FALSE(found.why_not.empty());
}

}  // namespace
}  // namespace pecia::test
