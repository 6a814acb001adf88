// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times of products in the user's cache, in files beside the rates (rates_cache.hpp). Losing one
/// costs only a new measurement.

#include <optional>
#include <string>
#include <vector>

#include "lib/settle/measure/product_times.hpp"

namespace pecia::measure {

/// A key of what products' times depend on: CPUs of all ranks, kinds of products, type of weights,
/// threads, ranks per host and build. Collective over `world`; every rank gets the same.
std::string products_key(comm::Communicator& world, const std::vector<kernels::MatmulKind>& kinds,
                         DType weights, int threads);

/// Whether there is a place to keep anything.
bool keeps_products();

/// Absent where nothing was kept under the key, or the file is damaged.
std::optional<std::vector<ProductTime>> kept_products(const std::string& key);

/// Keeps the times, and returns those that later runs will find. These are others where another
/// process kept its own first. Throws SystemError.
std::vector<ProductTime> keep_products(const std::string& key,
                                       const std::vector<ProductTime>& times);

}  // namespace pecia::measure
