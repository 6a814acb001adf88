// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Transfers of a device's memory by way of the host's: for ranks that share a GPU, and where no
/// faster way is.

#include "lib/comm/communicator.hpp"
#include "lib/device/device.hpp"

namespace pecia::comm {

/// `host`'s group for tensors in the memory of `device`, in the order of `stream`; both outlive it.
/// What is sent is copied to pinned memory when a transfer starts, and the host waits for that;
/// what came is copied to the device when the transfer is waited for. Sums are made on the host.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       device::Device& device,
                                                       device::Stream& stream);

}  // namespace pecia::comm
