// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Transfers between GPU memories by NCCL, on a separate stream. They begin after the work that the
/// computing stream holds when they are started. Work that is enqueued there after a wait follows
/// the transfer. The host waits for none of this.

#include "lib/ranks/comm/call_watch.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/nccl.hpp"

namespace pecia::comm {

/// The group of `host` for tensors in the memory of `device`, in the order of `stream`. Device and
/// stream outlive it.
///
/// progress(), which the stream calls while the host waits for it, and starting a transfer throw
/// SystemError when NCCL met an error, or when a transfer is not done within wait_timeout of its
/// start. The error names the oldest unfinished transfer, its number and its peers. All transfers
/// under way are aborted then. A call of NCCL may wait for other ranks: if it does not return within
/// wait_timeout, all groups are aborted from another thread, so that their peers meet an error, too.
/// Then `late` is told which call it was, and is to end the job. It is told within another
/// wait_timeout, 10 s at most, also where NCCL does not abort.
///
/// Traffic counts collectives as HostCollectives would send them.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::unique_ptr<Nccl> nccl,
                                                     device::Device& device, device::Stream& stream,
                                                     CallWatch::Late late);

}  // namespace pecia::comm
