// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks that read different models, as from stale copies on disks of hosts, would write wrong text.

#include <filesystem>
#include <string>

#include "lib/model/config/fingerprint.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::run {

/// Throws InputError on every rank where the ranks' fingerprints of `folder` differ. The error says
/// which ranks on which hosts differ from rank 0, and in what. `host`: this rank's. Collective.
void require_same_model(comm::Communicator& world, const std::string& host,
                        const model::Fingerprint& mine, const std::filesystem::path& folder);

}  // namespace pecia::run
