// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Transfers between the memories of GPUs by NCCL, on a stream of their own: they begin after what
/// the computing stream holds when they are started, and what is enqueued there after a wait comes
/// after them. The host waits for none of it.

#include "lib/comm/communicator.hpp"
#include "lib/comm/nccl.hpp"

namespace pecia::comm {

/// `host`'s group for tensors in the memory of `device`, in the order of `stream`; both outlive it.
///
/// progress(), which the stream calls while the host waits for it, and starting a transfer throw
/// SystemError when NCCL met an error, or when a transfer is not done wait_timeout after its start:
/// naming the oldest such, its number and its peers. All transfers under way are aborted then.
///
/// Traffic counts the collectives as if every rank sent to every other.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::unique_ptr<Nccl> nccl,
                                                     device::Device& device,
                                                     device::Stream& stream);

}  // namespace pecia::comm
