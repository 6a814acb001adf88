// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank computes with, as the job's `backend` asks.

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

/// Whether the ranks compute on GPUs: as the job says, or (auto) where each of them sees one. The
/// same on every rank; collective over `world`.
bool computes_on_gpus(const job::Job& job, comm::Communicator& world);

/// Which of `visible` GPUs rank `local_rank` of a host takes: its own number, the only one where a
/// launcher shows each rank its own, or one that others have too.
int gpu_of_rank(int local_rank, int visible);

/// Collective over `world`; fails on all ranks together. InputError naming the ranks where two have
/// the same GPU and the job does not allow it, and where a rank sees none.
ComputePlace make_compute_place(const job::Job& job, bool gpus, const Threads& threads,
                                comm::Communicator& world);

/// The replica for tensors where the place has its memory apart: by NCCL, which wants a GPU for
/// each rank, or by the host. Null where the replica's own transfers do. Collective over `replica`.
std::unique_ptr<comm::Communicator> tensor_group(const job::Job& job, comm::Communicator& replica,
                                                 const ComputePlace& place);

/// Throws InputError naming two ranks of one host and address, where there are such. `by_rank`:
/// host and PCI address of each rank's GPU.
void refuse_shared_gpus(const std::vector<std::pair<std::string, std::string>>& by_rank);

}  // namespace pecia::resources
