// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The same for many indices, by several threads.

#include <cstddef>
#include <functional>

namespace pecia {

/// Calls each(index) for all indices below `count`, on up to `threads` threads, of which the caller is
/// one. Where calls throw, the exception of the lowest index is thrown once all threads have ended.
void in_parallel(int threads, size_t count, const std::function<void(size_t index)>& each);

}  // namespace pecia
