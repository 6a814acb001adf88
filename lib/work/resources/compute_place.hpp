// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The device, stream and backend of a rank, as the job's `backend` asks.

#include <optional>

#include "kernels/api/backend.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::resources {

struct ComputePlace {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<kernels::Backend> backend;

  bool on_gpu() const { return device->info().is_gpu(); }
};

/// Whether the ranks compute on GPUs: as the job says, or (auto) where each of them sees one.
/// Collective over `world`; every rank gets the same.
bool computes_on_gpus(const job::Job& job, comm::Communicator& world);

/// The GPU, of `visible` ones, that rank `local_rank` of a host takes. It is the rank's own number,
/// or the only GPU where a launcher shows each rank its own. With more ranks than GPUs it is one
/// that other ranks have too.
int gpu_of_rank(int local_rank, int visible);

/// The products of all ranks in a fixed order, without measuring: AMX where each of their CPUs has
/// it, else bf16, else fp32; or what the job's model.compute names. Throws Unsupported for what not
/// all of them have. Collective over `world`.
kernels::MatmulKind fixed_products(const job::Job& job, comm::Communicator& world);

/// Makes the place where this rank computes. CPUs multiply by `products`, which every rank has, or
/// if they are absent by fixed_products. Throws InputError where a rank sees no GPU, and naming
/// two ranks that have the same GPU where the job does not allow that. Collective over `world`;
/// fails on all ranks together.
ComputePlace make_compute_place(const job::Job& job, bool gpus, const Threads& threads,
                                comm::Communicator& world,
                                const std::optional<kernels::CpuProducts>& products = {});

/// A communicator of the replica's ranks for tensors in a device's own memory. It uses NCCL, which
/// needs a GPU for each rank, or stages through the host. Null where the replica's own transfers
/// reach the tensors. Collective over `replica`.
std::unique_ptr<comm::Communicator> tensor_group(const job::Job& job, comm::Communicator& replica,
                                                 const ComputePlace& place);

/// The GPU of a rank, or its instance of a GPU.
struct RankGpu {
  std::string host, address, uuid;
};

/// Throws InputError naming two ranks that share a GPU, if there are any. GPUs and instances of a
/// GPU are told apart by their UUIDs.
void refuse_shared_gpus(const std::vector<RankGpu>& by_rank);

}  // namespace pecia::resources
