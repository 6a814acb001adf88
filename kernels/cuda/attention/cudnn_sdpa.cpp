// SPDX-License-Identifier: Apache-2.0
/// The only file that includes cudnn-frontend, which takes most of a minute to compile. cuDNN
/// itself is loaded when it is first asked for, so programs start on machines without it.
///
/// A graph is made of exact shapes and strides: no key outside a rectangle is read, whose bits
/// might be NaN and would be multiplied by 0. Graphs are of dynamic shape and share a kernel cache,
/// so that only the first of a mask, type and head size compiles a kernel; another length costs
/// about 2 ms, once. cuDNN takes such graphs from 9.18.1 to 9.20. Elsewhere a graph of static shape
/// is compiled for each length that is worth it.

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <limits>
#include <map>
#include <optional>

#include "kernels/cuda/attention/sdpa.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // cudnn-frontend looks up cuDNN's functions here
}

namespace pecia::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;

constexpr const char* library_file = "libcudnn.so.9";
constexpr size_t oldest_version = 91000;         // the oldest that is still common
constexpr size_t first_dynamic_version = 91801;  // whose attention takes graphs of dynamic shape

std::string version_name(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Loads cuDNN once for the process; why it cannot be used, or nothing.
std::string load_cudnn() {
  if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen(library_file, RTLD_NOW);
  if (fe::cudnn_dlhandle == nullptr)
    return fmt::format("{} was not loaded: {}", library_file, dlerror());
  const size_t version = fe::detail::get_backend_version();
  if (version < oldest_version)
    return fmt::format("cuDNN {} is older than {}", version_name(version),
                       version_name(oldest_version));
  return "";
}

void check_status(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    fail<SystemError>("{} ({}, cuDNN {})", fe::detail::get_error_string(status), call,
                      version_name(fe::detail::get_backend_version()));
}

enum Uid : int64_t { uid_q = 1, uid_k, uid_v, uid_out, uid_lse };

struct Plan {
  std::shared_ptr<Graph> graph;
  int64_t workspace_bytes = 0;
};

/// What all graphs of one GPU have. Nodes copy it when they are made.
struct Settings {
  int compute_capability;
  SdpaGraphs graphs;
  std::shared_ptr<fe::KernelCache> kernel_cache;     ///< of the graphs of dynamic shape
  std::shared_ptr<fe::DeviceProperties> properties;  ///< null where the GPU is present
};

/// Attention as a graph, batch 1. Axes are (batch, head, row, element) whatever the memory's order.
std::shared_ptr<Graph> make_graph(const SdpaShape& s, const Settings& settings, bool dynamic) {
  auto graph = std::make_shared<Graph>();
  graph->set_sm_version(settings.compute_capability)
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);  // never captured in a CUDA graph
  if (dynamic) graph->set_dynamic_shape_enabled(true).set_kernel_cache(settings.kernel_cache);
  if (settings.properties) graph->set_device_properties(settings.properties);
  graph->set_io_data_type(s.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const std::vector<int64_t> row_major = {s.num_rows * s.num_heads * s.head_dim, s.head_dim,
                                          s.num_heads * s.head_dim, 1};
  const std::vector<int64_t> cache = {s.num_kv_heads * s.kv_head_stride, s.kv_head_stride,
                                      s.head_dim, 1};
  const auto input = [&](const char* name, Uid uid, int64_t heads, int64_t rows,
                         const std::vector<int64_t>& strides) {
    return graph->tensor(Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({1, heads, rows, s.head_dim})
                             .set_stride(strides));
  };
  const auto q = input("q", uid_q, s.num_heads, s.num_rows, row_major);
  const auto k = input("k", uid_k, s.num_kv_heads, s.num_keys, cache);
  const auto v = input("v", uid_v, s.num_kv_heads, s.num_keys, cache);

  auto attention = fe::graph::SDPA_attributes();
  attention.set_name("attention").set_generate_stats(true).set_attn_scale(s.scale);
  switch (s.mask) {
    case Mask::full:
      break;
    case Mask::band:
      attention.set_diagonal_band_left_bound(static_cast<int>(s.window));
      [[fallthrough]];
    case Mask::causal:
      attention.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT)
          .set_diagonal_band_right_bound(0);
      break;
    case Mask::mirror:
      attention.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_left_bound(1);
      break;
  }
  const auto [out, lse] = graph->sdpa(q, k, v, attention);
  out->set_output(true)
      .set_uid(uid_out)
      .set_dim({1, s.num_heads, s.num_rows, s.head_dim})
      .set_stride(row_major);
  lse->set_output(true)
      .set_uid(uid_lse)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({1, s.num_heads, s.num_rows, 1})
      .set_stride({s.num_heads * s.num_rows, s.num_rows, 1, 1});
  return graph;
}

class CudnnSdpa : public Sdpa {
 public:
  CudnnSdpa(device::Device& device, SdpaGraphs graphs)
      : settings_{device.info().compute_capability, graphs, std::make_shared<fe::KernelCache>(),
                  nullptr},
        workspace_(device, device::Memory::device) {
    check_status(fe::detail::create_handle(&handle_), "cudnnCreate");
  }
  CudnnSdpa(std::shared_ptr<fe::DeviceProperties> properties, int compute_capability,
            SdpaGraphs graphs)
      : settings_{compute_capability, graphs, std::make_shared<fe::KernelCache>(),
                  std::move(properties)} {}
  ~CudnnSdpa() override {
    plans_.clear();
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }
  CudnnSdpa(const CudnnSdpa&) = delete;
  CudnnSdpa& operator=(const CudnnSdpa&) = delete;

  std::string name() const override {
    std::string text = "cuDNN " + version_name(fe::detail::get_backend_version());
    if (num_static_ > 0)
      text += fmt::format(" by graphs of static shape ({} of {}{})", num_static_,
                          num_static_ + num_dynamic_,
                          why_static_.empty() ? "" : "; dynamic shapes: " + why_static_);
    if (num_left_ > 0)
      text += fmt::format(", without {} shapes that are not worth a static graph", num_left_);
    return refusal_.empty() ? text : text + ", which refused " + refusal_;
  }

  bool takes(const SdpaShape& shape) override { return plan_for(shape).has_value(); }

  bool run(const SdpaArgs& args, device::Stream& stream) override {
    const std::optional<Plan>& plan = plan_for(args.shape);
    PECIA_CHECK(handle_ != nullptr, "attention of cuDNN without a GPU");
    if (!plan) return false;
    check_status(fe::detail::set_stream(handle_, native(stream)), "cudnnSetStream");
    workspace_.reserve(plan->workspace_bytes);
    std::unordered_map<int64_t, void*> tensors = {{uid_q, const_cast<void*>(args.q)},
                                                  {uid_k, const_cast<void*>(args.k)},
                                                  {uid_v, const_cast<void*>(args.v)},
                                                  {uid_out, args.out},
                                                  {uid_lse, args.lse}};
    fe::error_t error = plan->graph->execute(handle_, tensors, workspace_.data());
    if (error.is_good()) return true;
    if (const cudaError_t lost = cudaGetLastError(); device::is_sticky(lost))
      PECIA_CUDA_CHECK(lost);
    note_refusal(args.shape, "it did not start: " + error.get_message());
    plans_[args.shape].reset();
    return false;
  }

 private:
  const std::optional<Plan>& plan_for(const SdpaShape& shape) {
    const auto known = plans_.find(shape);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= most_plans) plans_.clear();
    return plans_.emplace(shape, make_plan(shape)).first->second;
  }

  std::optional<Plan> make_plan(const SdpaShape& shape) {
    // Beyond, some of cuDNN's kernels would count elements in too few bits.
    constexpr int64_t most_elements = std::numeric_limits<int32_t>::max();
    if (shape.num_rows * shape.num_heads * shape.head_dim > most_elements ||
        shape.num_kv_heads * shape.kv_head_stride > most_elements) {
      note_refusal(shape, "more than 2³¹ elements");
      return std::nullopt;
    }
    if (may_be_dynamic()) {
      Plan plan = {make_graph(shape, settings_, true)};
      fe::error_t error = build(plan);
      if (error.is_good()) {
        ++num_dynamic_;
        return plan;
      }
      if (why_static_.empty()) why_static_ = error.get_message();
    }
    if (settings_.graphs != SdpaGraphs::static_for_each && !worth_a_static_graph(shape)) {
      ++num_left_;
      return std::nullopt;
    }
    Plan plan = {make_graph(shape, settings_, false)};
    fe::error_t error = build(plan);
    if (error.is_bad()) {
      note_refusal(shape, error.get_message());
      return std::nullopt;
    }
    ++num_static_;
    return plan;
  }

  bool may_be_dynamic() const {
    return settings_.graphs == SdpaGraphs::any &&
           fe::detail::get_backend_version() >= first_dynamic_version;
  }

  void note_refusal(const SdpaShape& shape, const std::string& why) {
    if (refusal_.empty())
      refusal_ = fmt::format("{} × {}, {}, heads of {}: {}", shape.num_rows, shape.num_keys,
                             name_of(shape.mask), shape.head_dim, why);
  }

  fe::error_t build(Plan& plan) {
    Graph& graph = *plan.graph;
    if (auto error = graph.validate(); error.is_bad()) return error;
    auto error =
        settings_.properties ? graph.build_operation_graph() : graph.build_operation_graph(handle_);
    if (error.is_bad()) return error;
    if (error = graph.create_execution_plans({fe::HeurMode_t::A}); error.is_bad()) return error;
    if (error = graph.check_support(); error.is_bad()) return error;
    if (error = graph.build_plans(); error.is_bad()) return error;
    return graph.get_workspace_size(plan.workspace_bytes);
  }

  static constexpr size_t most_plans = 512;
  Settings settings_;
  cudnnHandle_t handle_ = nullptr;  ///< null where the GPU is absent
  device::Buffer workspace_;
  std::map<SdpaShape, std::optional<Plan>> plans_;  ///< nothing for what was refused
  std::string refusal_;                             ///< the first
  int num_dynamic_ = 0, num_static_ = 0;            ///< graphs made
  int num_left_ = 0;                                ///< shapes that are not worth one
  std::string why_static_;                          ///< why the first was not of dynamic shape
};

}  // namespace

FoundSdpa find_cudnn_sdpa(device::Device& device, SdpaGraphs graphs) {
  if (std::string why_not = load_cudnn(); !why_not.empty()) return {nullptr, std::move(why_not)};
  return {std::make_unique<CudnnSdpa>(device, graphs), ""};
}

FoundSdpa find_cudnn_sdpa_without_gpu(const std::string& device_json, int compute_capability,
                                      SdpaGraphs graphs) {
  if (std::string why_not = load_cudnn(); !why_not.empty()) return {nullptr, std::move(why_not)};
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto error = properties->deserialize({device_json.begin(), device_json.end()});
      error.is_bad())
    return {nullptr, error.get_message()};
  return {std::make_unique<CudnnSdpa>(std::move(properties), compute_capability, graphs), ""};
}

}  // namespace pecia::kernels::cuda
