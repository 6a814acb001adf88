// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/compute_place.hpp"

#include <map>

#include "lib/base/core/archive.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/mpi_environment.hpp"
#include "lib/ranks/comm/nccl_communicator.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"

namespace pecia::resources {
namespace {

struct TravellingGpu {
  RankGpu gpu;

  template <typename A>
  void visit(A& archive) {
    archive(gpu.host), archive(gpu.address), archive(gpu.uuid);
  }
};

}  // namespace

bool computes_on_gpus(const job::Job& job, comm::Communicator& world) {
  if (job.backend) return *job.backend == job::BackendKind::cuda;
  return world.all_reduce_max(device::num_cuda_devices() > 0 ? 0 : 1) == 0;
}

int gpu_of_rank(int local_rank, int visible) {
  return local_rank % visible;
}

void refuse_shared_gpus(const std::vector<RankGpu>& by_rank) {
  std::map<std::string, size_t> first;  // rank by UUID
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto [other, is_new] = first.emplace(by_rank[rank].uuid, rank);
    if (!is_new)
      fail<InputError>(
          "ranks {} and {} have the same GPU, {} of host {}: start as many ranks on a host as it "
          "has GPUs, or show each rank its own (srun --gpus-per-task=1); allow_gpu_sharing: true "
          "in the job file is for tests",
          other->second, rank, by_rank[rank].address, by_rank[rank].host);
  }
}

kernels::MatmulKind fixed_products(const job::Job& job, comm::Communicator& world) {
  const auto everywhere = [&](kernels::MatmulKind products) {
    return world.all_reduce_max(kernels::why_no_products(products).empty() ? 0 : 1) == 0;
  };
  const bool bf16 = everywhere(kernels::MatmulKind::bf16),
             amx = everywhere(kernels::MatmulKind::amx);
  if (job.model.compute == job::Precision::bf16 && !bf16)
    fail<Unsupported>(
        "model.compute: bf16 needs CPUs with AVX512-BF16, or BF16 of Arm, and not every rank has "
        "one; use compute: "
        "fp32");
  if (job.model.compute == job::Precision::fp32) return kernels::MatmulKind::fp32;
  if (amx) return kernels::MatmulKind::amx;
  return bf16 ? kernels::MatmulKind::bf16 : kernels::MatmulKind::fp32;
}

ComputePlace make_compute_place(const job::Job& job, bool gpus, const Threads& threads,
                                comm::Communicator& world,
                                const std::optional<kernels::CpuProducts>& products) {
  ComputePlace place;
  const int local_rank = world.split_by_host()->rank();
  const kernels::CpuProducts taken = gpus       ? kernels::MatmulKind::fp32
                                     : products ? *products
                                                : kernels::CpuProducts(fixed_products(job, world));
  comm::together(world, [&] {
    if (gpus) {
      const int visible = device::num_cuda_devices();
      place.device = device::make_cuda_device(visible > 0 ? gpu_of_rank(local_rank, visible) : 0);
      job::refuse_on_gpus(job, place.device->info().compute_capability);
      place.backend = kernels::make_cuda_backend(*place.device);
    } else {
      job::refuse_on_cpus(job);
      place.device = device::make_host_device(threads.count, threads.cpus);
      place.backend = kernels::make_cpu_backend(taken);
    }
    place.stream = place.device->make_stream();
  });
  if (!gpus || job.gpu_sharing != job::GpuSharing::no) return place;
  const device::DeviceInfo& info = place.device->info();
  std::vector<RankGpu> by_rank;
  for (const auto& bytes :
       world.all_gather(to_bytes(TravellingGpu{{cluster::host_name(), info.address, info.uuid}})))
    by_rank.push_back(from_bytes<TravellingGpu>(bytes).gpu);
  comm::together(world, [&] { refuse_shared_gpus(by_rank); });
  return place;
}

namespace {
/// Ends the job from the thread that finds a call late.
comm::CallWatch::Late ends_job(int rank) {
  return [rank](const std::string& words) {
    fmt::print(stderr, "pecia: rank {} of its replica: {}\n", rank, words);
    comm::MpiEnvironment::abort(1);
  };
}
}  // namespace

std::unique_ptr<comm::Communicator> tensor_group(const job::Job& job, comm::Communicator& replica,
                                                 const ComputePlace& place) {
  if (!place.on_gpu()) return nullptr;
  auto host = replica.split(0, replica.rank());
  if (job.gpu_sharing == job::GpuSharing::staged || replica.size() == 1)
    return comm::make_staged_communicator(std::move(host), *place.device, *place.stream);
  const comm::CallWatch::Late late = ends_job(host->rank());
  auto nccl = comm::make_nccl(*host, *place.device, late);
  return comm::make_nccl_communicator(std::move(host), std::move(nccl), *place.device,
                                      *place.stream, late);
}

}  // namespace pecia::resources
