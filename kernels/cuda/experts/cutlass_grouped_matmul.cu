// SPDX-License-Identifier: Apache-2.0
/// The only file that includes CUTLASS (3.x, "CUTLASS 3.0 GEMM API"; example 57,
/// 57_hopper_grouped_gemm). It is compiled for compute capability 9.0 alone and takes minutes.
///
/// All kernels are of one shape. A block is three groups of four warps: one brings pieces of x and
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
#include "lib/base/device/graph_stream.hpp"

namespace pecia::kernels::cuda {

namespace fusion = cutlass::epilogue::fusion;
using Number = cutlass::bfloat16_t;
using Code = cutlass::float_e4m3_t;
/// 16 bytes, as TMA takes rows.
template <typename T>
constexpr int numbers_at_once = 16 / sizeof(T);
// 128 rows × 256 columns, 128 bytes deep at a time: the most that two groups of warps keep in
// registers.
template <typename T>
using GroupTile = cute::Shape<cute::_128, cute::_256, cute::Int<128 / sizeof(T)>>;
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

/// A number for each column, the same in all rows of a group.
template <typename T>
using OfColumns = fusion::Sm90RowBroadcast<0, GroupTile<T>, float, float,
                                           cute::Stride<cute::_0, cute::_1, int64_t>>;
/// A number for each row, in arrays of the groups.
template <typename T>
using OfRows = fusion::Sm90ColBroadcast<0, GroupTile<T>, float*, float,
                                        cute::Stride<cute::_1, cute::_0, cute::_0>>;
template <template <typename> class Function, typename To, typename... Of>
using Computed = fusion::Sm90EVT<fusion::Sm90Compute<Function, To, float, to_nearest>, Of...>;

/// product + bias, in To; of codes product · scale of x's row · scale of the column + bias.
template <typename T, typename To>
struct Sum {
  using Fusion = Computed<cutlass::plus, To, OfColumns<T>, fusion::Sm90AccFetch>;
};
template <typename To>
struct Sum<Code, To> {
  using OfX = Computed<cutlass::multiplies, float, OfRows<Code>, fusion::Sm90AccFetch>;
  using Fusion =
      Computed<cutlass::homogeneous_multiply_add, To, OfColumns<Code>, OfX, OfColumns<Code>>;
};
/// activation(y before, sum).
template <typename T>
using OfGates =
    Computed<Gated, Number, fusion::Sm90SrcFetch<Number>, typename Sum<T, float>::Fusion>;

/// `Before`: type of what stands in y before, or void where it is not read. Codes are multiplied as
/// cuBLASLt multiplies them for `linear`, with its fast accumulation.
template <typename T, typename Before, typename Fusion, typename EpilogueTile>
struct Grouped {
  using Rows = cutlass::layout::RowMajor*;
  using Columns = cutlass::layout::ColumnMajor*;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, GroupTile<T>, GroupCluster, EpilogueTile,
      float, float, Before, Rows, numbers_at_once<Number>, Number, Rows, numbers_at_once<Number>,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative, Fusion>::CollectiveOp;
  using Schedule =
      std::conditional_t<std::is_same_v<T, Code>,
                         cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperativeFP8FastAccum,
                         cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, T, Rows, numbers_at_once<T>, T, Columns,
      numbers_at_once<T>, float, GroupTile<T>, GroupCluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Problems = cutlass::gemm::GroupProblemShape<cute::Shape<int32_t, int32_t, int32_t>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Problems, Mainloop, Epilogue>;
};
using AnyTile = cutlass::epilogue::collective::EpilogueTileAuto;
// Columns are stored 16 at a time: with 32, as elsewhere, and the scales of the columns, a stage of
// the products would have no room.
using NarrowTile = cute::Shape<cute::_128, cute::_16>;

// Names of our own, which a list of kernels shows.
struct GroupedProducts : Grouped<Number, void, Sum<Number, Number>::Fusion, AnyTile>::Kernel {
  using Factor = Number;
};
struct GroupedGates : Grouped<Number, Number, OfGates<Number>, AnyTile>::Kernel {
  using Factor = Number;
};
struct GroupedCodeProducts : Grouped<Code, void, Sum<Code, Number>::Fusion, AnyTile>::Kernel {
  using Factor = Code;
};
struct GroupedCodeGates : Grouped<Code, Number, OfGates<Code>, NarrowTile>::Kernel {
  using Factor = Code;
};

// What GroupArrays has is what CUTLASS reads.
using Problem = GroupedProducts::ProblemShape::UnderlyingProblemShape;
static_assert(sizeof(Problem) == sizeof(GroupShape) && alignof(Problem) == alignof(GroupShape));
static_assert(sizeof(GroupedProducts::InternalStrideA) == sizeof(int64_t) &&
              sizeof(GroupedProducts::InternalStrideB) == sizeof(int64_t) &&
              sizeof(GroupedProducts::InternalStrideD) == sizeof(int64_t) &&
              sizeof(GroupedGates::InternalStrideC) == sizeof(int64_t));
static_assert(sizeof(Number) == sizeof(Bf16) && sizeof(Code) == sizeof(Fp8));
// pecia_tools.gpu.kernel_table has these. Each multiprocessor has room for one block.
static_assert(GroupedProducts::MaxThreadsPerBlock == 384 &&
              GroupedProducts::SharedStorageSize == 215552 &&
              GroupedGates::SharedStorageSize == 231936 &&
              GroupedCodeProducts::SharedStorageSize == 216576 &&
              GroupedCodeGates::SharedStorageSize == 216320);

namespace {

template <typename Kernel>
constexpr bool multiplies_gates =
    std::is_same_v<Kernel, GroupedGates> || std::is_same_v<Kernel, GroupedCodeGates>;

template <typename Kernel>
typename Kernel::Arguments arguments_of(const GroupedMatmulArgs& args,
                                        const cutlass::KernelHardwareInfo& hardware) {
  const GroupArrays& arrays = args.arrays;
  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideC = typename Kernel::InternalStrideC;
  using StrideD = typename Kernel::InternalStrideD;
  using T = typename Kernel::Factor;
  const auto of_columns = [&](const float* numbers) {
    return typename OfColumns<T>::Arguments{numbers, 0.0f, {{}, {}, args.columns}};
  };
  using To = std::conditional_t<multiplies_gates<Kernel>, float, Number>;
  typename Sum<T, To>::Fusion::Arguments sum;
  if constexpr (std::is_same_v<T, Code>)
    sum = {of_columns(arrays.weight_scales),
           {{arrays.x_scales, 0.0f, {}}, {}, {}},
           of_columns(arrays.bias),
           {}};
  else
    sum = {of_columns(arrays.bias), {}, {}};
  typename Kernel::Arguments to = {};
  to.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  to.problem_shape = {static_cast<int32_t>(args.groups), reinterpret_cast<Problem*>(arrays.shapes),
                      nullptr};
  to.mainloop.ptr_A = reinterpret_cast<const T**>(arrays.x);
  to.mainloop.dA = reinterpret_cast<StrideA*>(arrays.x_strides);
  to.mainloop.ptr_B = reinterpret_cast<const T**>(arrays.weights);
  to.mainloop.dB = reinterpret_cast<StrideB*>(arrays.weight_strides);
  to.epilogue.ptr_D = reinterpret_cast<Number**>(arrays.y);
  to.epilogue.dD = reinterpret_cast<StrideD*>(arrays.y_strides);
  if constexpr (multiplies_gates<Kernel>) {
    to.epilogue.thread = {{}, sum, {*args.of_gates}};
    to.epilogue.ptr_C = const_cast<const Number**>(reinterpret_cast<Number**>(arrays.y));
    to.epilogue.dC = reinterpret_cast<StrideC*>(arrays.y_strides);
  } else {
    to.epilogue.thread = sum;
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
    allow<GroupedCodeProducts>();
    allow<GroupedCodeGates>();
  }

  std::string name() const override {
    return fmt::format("CUTLASS {}.{}.{}", CUTLASS_MAJOR, CUTLASS_MINOR, CUTLASS_PATCH);
  }
  void run(const GroupedMatmulArgs& args, device::Stream& stream) override {
    if (args.type == DType::fp8)
      args.of_gates ? launch<GroupedCodeGates>(args, stream)
                    : launch<GroupedCodeProducts>(args, stream);
    else
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
  FoundGroupedMatmul found = {std::make_unique<CutlassGroupedMatmul>(device), ""};
  if (!device::is_switched_on(fp8_experts_switch, "products of fp8 by fp8 for experts"))
    found.why_no_fp8 = fmt::format("{}=0", fp8_experts_switch);
  return found;
}

}  // namespace pecia::kernels::cuda
