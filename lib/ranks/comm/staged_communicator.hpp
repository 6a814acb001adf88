// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Transfers device memory by way of host memory. For ranks that share a GPU, and for machines
/// without a faster way.

#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// The group of `host` for tensors in the memory of `device`, in the order of `stream`. Device and
/// stream outlive it. When a transfer starts, the bytes to send are copied to pinned memory, and
/// the host waits for this copy. When the transfer is waited for, the received bytes are copied to
/// the device. Sums are made on the host.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       device::Device& device,
                                                       device::Stream& stream);

}  // namespace pecia::comm
