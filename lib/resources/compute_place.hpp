// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The device, stream and backend of a rank, as the job's `backend` asks.

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/job/job.hpp"
#include "lib/resources/threads.hpp"

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

/// Makes the place where this rank computes. Throws InputError where a rank sees no GPU, and naming
/// two ranks that have the same GPU where the job does not allow that. Collective over `world`;
/// fails on all ranks together.
ComputePlace make_compute_place(const job::Job& job, bool gpus, const Threads& threads,
                                comm::Communicator& world);

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
