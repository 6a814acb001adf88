// SPDX-License-Identifier: Apache-2.0
/// The only file that includes CUTLASS (3.x, "CUTLASS 3.0 GEMM API"; example 57,
/// 57_hopper_grouped_gemm). It is compiled for compute capability 9.0 alone and takes most of a
/// minute.
///
/// Both kernels are of one shape. A block is three groups of four warps: one brings pieces of x and
/// of the weights into shared memory (TMA), two multiply them there (wgmma), 64 × 256 of y each. Two
/// blocks, 256 rows of the same columns, share what they read of the weights (a cluster). Blocks stay
/// and take tile after tile of all groups.

#include <cutlass/cutlass.h>
#include <cutlass/version.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda/experts/grouped_matmul.hpp"
#include "kernels/cuda/shared/elementwise_kernels.cuh"
#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"

namespace pecia::kernels::cuda {

namespace fusion = cutlass::epilogue::fusion;
using Number = cutlass::bfloat16_t;
constexpr int numbers_at_once = 8;  // 16 bytes, as TMA takes rows
// 128 rows × 256 columns, 64 deep at a time: the most that two groups of warps keep in registers.
using GroupTile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using GroupCluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
constexpr auto to_nearest = cutlass::FloatRoundStyle::round_to_nearest;

struct GatedArguments {
  Activation activation;
};
/// activated() as a function of an epilogue, whose types are these two.
template <typename T>
struct Gated {
  using Arguments = GatedArguments;
};
template <int Count, bool Registers>
struct Gated<cutlass::Array<float, Count, Registers>> {
  using Arguments = GatedArguments;
  using Values = cutlass::Array<float, Count, Registers>;
  __device__ Values operator()(const Values& gates, const Values& ups,
                               const Arguments& arguments) const {
    Values out;
#pragma unroll
    for (int i = 0; i < Count; ++i) out[i] = activated(gates[i], ups[i], arguments.activation);
    return out;
  }
};

using RowOfBias =
    fusion::Sm90RowBroadcast<0, GroupTile, float, float, cute::Stride<cute::_0, cute::_1, int64_t>>;
/// product + bias, in T.
template <typename T>
using WithBias = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, T, float, to_nearest>,
                                 RowOfBias, fusion::Sm90AccFetch>;
/// activation(y before, product + bias).
using OfGates = fusion::Sm90EVT<fusion::Sm90Compute<Gated, Number, float, to_nearest>,
                                fusion::Sm90SrcFetch<Number>, WithBias<float>>;

/// `Before`: type of what stands in y before, or void where it is not read.
template <typename Before, typename Fusion>
struct Grouped {
  using Rows = cutlass::layout::RowMajor*;
  using Columns = cutlass::layout::ColumnMajor*;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, GroupTile, GroupCluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Before, Rows, numbers_at_once,
      Number, Rows, numbers_at_once, cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative,
      Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, Rows, numbers_at_once, Number,
      Columns, numbers_at_once, float, GroupTile, GroupCluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
  using Problems = cutlass::gemm::GroupProblemShape<cute::Shape<int32_t, int32_t, int32_t>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Problems, Mainloop, Epilogue>;
};

// Names of our own, which a list of kernels shows.
struct GroupedProducts : Grouped<void, WithBias<Number>>::Kernel {};
struct GroupedGates : Grouped<Number, OfGates>::Kernel {};

// What GroupArrays has is what CUTLASS reads.
using Problem = GroupedProducts::ProblemShape::UnderlyingProblemShape;
static_assert(sizeof(Problem) == sizeof(GroupShape) && alignof(Problem) == alignof(GroupShape));
static_assert(sizeof(GroupedProducts::InternalStrideA) == sizeof(int64_t) &&
              sizeof(GroupedProducts::InternalStrideB) == sizeof(int64_t) &&
              sizeof(GroupedProducts::InternalStrideD) == sizeof(int64_t) &&
              sizeof(GroupedGates::InternalStrideC) == sizeof(int64_t));
static_assert(sizeof(Number) == sizeof(Bf16));
// pecia_tools.gpu.kernel_table has these. Each multiprocessor has room for one block.
static_assert(GroupedProducts::MaxThreadsPerBlock == 384 &&
              GroupedProducts::SharedStorageSize == 215552 &&
              GroupedGates::SharedStorageSize == 231936);

namespace {

template <typename Kernel>
typename Kernel::Arguments arguments_of(const GroupedMatmulArgs& args,
                                        const cutlass::KernelHardwareInfo& hardware) {
  const GroupArrays& arrays = args.arrays;
  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideC = typename Kernel::InternalStrideC;
  using StrideD = typename Kernel::InternalStrideD;
  const RowOfBias::Arguments bias = {arrays.bias, 0.0f, {{}, {}, args.columns}};
  typename Kernel::Arguments to = {};
  to.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  to.problem_shape = {static_cast<int32_t>(args.groups), reinterpret_cast<Problem*>(arrays.shapes),
                      nullptr};
  to.mainloop.ptr_A = reinterpret_cast<const Number**>(arrays.x);
  to.mainloop.dA = reinterpret_cast<StrideA*>(arrays.x_strides);
  to.mainloop.ptr_B = reinterpret_cast<const Number**>(arrays.weights);
  to.mainloop.dB = reinterpret_cast<StrideB*>(arrays.weight_strides);
  to.epilogue.ptr_D = reinterpret_cast<Number**>(arrays.y);
  to.epilogue.dD = reinterpret_cast<StrideD*>(arrays.y_strides);
  if constexpr (std::is_same_v<Kernel, GroupedGates>) {
    to.epilogue.thread = {{}, {bias, {}, {}}, {*args.of_gates}};
    to.epilogue.ptr_C = const_cast<const Number**>(reinterpret_cast<Number**>(arrays.y));
    to.epilogue.dC = reinterpret_cast<StrideC*>(arrays.y_strides);
  } else {
    to.epilogue.thread = {bias, {}, {}};
  }
  to.hw_info = hardware;
  return to;
}

class CutlassGroupedMatmul : public GroupedMatmul {
 public:
  explicit CutlassGroupedMatmul(device::Device& device)
      : hardware_{0, device.info().multiprocessors}, workspace_(device, device::Memory::device) {
    allow<GroupedProducts>();
    allow<GroupedGates>();
  }

  std::string name() const override {
    return fmt::format("CUTLASS {}.{}.{}", CUTLASS_MAJOR, CUTLASS_MINOR, CUTLASS_PATCH);
  }
  void run(const GroupedMatmulArgs& args, device::Stream& stream) override {
    args.of_gates ? launch<GroupedGates>(args, stream) : launch<GroupedProducts>(args, stream);
  }

 private:
  template <typename Kernel>
  static void allow() {
    PECIA_CUDA_CHECK(cudaFuncSetAttribute(cutlass::device_kernel<Kernel>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          Kernel::SharedStorageSize));
  }

  template <typename Kernel>
  void launch(const GroupedMatmulArgs& args, device::Stream& stream) {
    const auto arguments = arguments_of<Kernel>(args, hardware_);
    PECIA_CHECK(Kernel::can_implement(arguments), "{} groups of {} columns by {}", args.groups,
                args.columns, name());
    const auto bytes = static_cast<int64_t>(Kernel::get_workspace_size(arguments));
    auto* const workspace = workspace_.tensor(DType::uint8, {std::max<int64_t>(1, bytes)}).data();
    device::CudaStream& on = cuda_stream(stream);
    on.submit(
        [=, &on] {
          PECIA_CHECK(Kernel::initialize_workspace(arguments, workspace, on.get()) ==
                          cutlass::Status::kSuccess,
                      "the workspace of CUTLASS");
          const auto params = Kernel::to_underlying_arguments(arguments, workspace);
          cudaLaunchAttribute cluster;
          cluster.id = cudaLaunchAttributeClusterDimension;
          cluster.val.clusterDim = {cute::size<0>(GroupCluster()), cute::size<1>(GroupCluster()),
                                    cute::size<2>(GroupCluster())};
          cudaLaunchConfig_t config = {};
          config.gridDim = Kernel::get_grid_shape(params);
          config.blockDim = Kernel::get_block_shape();
          config.dynamicSmemBytes = Kernel::SharedStorageSize;
          config.stream = on.get();
          config.attrs = &cluster;
          config.numAttrs = 1;
          PECIA_CUDA_CHECK(cudaLaunchKernelEx(&config, cutlass::device_kernel<Kernel>, params));
        },
        work_of(args), static_cast<const void*>(workspace));
  }

  cutlass::KernelHardwareInfo hardware_;
  device::Buffer workspace_;  ///< in which blocks note where a group's matrices lie
};

}  // namespace

FoundGroupedMatmul find_cutlass_grouped_matmul(device::Device& device) {
  const int capability = device.info().compute_capability;
  if (capability != 90)
    return {nullptr,
            fmt::format("its products are for compute capability 9.0, and this GPU has {}.{}",
                        capability / 10, capability % 10)};
  return {std::make_unique<CutlassGroupedMatmul>(device), ""};
}

}  // namespace pecia::kernels::cuda
