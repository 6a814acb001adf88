// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keeps the list of a device's memory blocks, for code that registers them elsewhere: a library
/// that transfers memory needs whole blocks, and must hear of a block before it is freed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace pecia::device {

/// Gets a call before a block's memory is freed, and may wait there for work that uses the block.
class BlockWatcher {
 public:
  virtual ~BlockWatcher() = default;
  virtual void leaves(const std::byte* block) noexcept = 0;
};

/// Written by Buffer, which alone owns blocks. Not thread-safe: one thread uses it.
class Blocks {
 public:
  void add(std::byte* data, int64_t bytes) { bytes_[data] = bytes; }
  void remove(std::byte* data) noexcept {
    for (BlockWatcher* const watcher : watchers_) watcher->leaves(data);
    bytes_.erase(data);
  }

  /// The block that contains all of `bytes`; empty if no block does.
  std::span<std::byte> around(std::span<const std::byte> bytes) const {
    auto after = bytes_.upper_bound(const_cast<std::byte*>(bytes.data()));
    if (after == bytes_.begin()) return {};
    const auto [data, size] = *--after;
    if (bytes.data() + bytes.size() > data + size) return {};
    return {data, static_cast<size_t>(size)};
  }

  void add_watcher(BlockWatcher& watcher) { watchers_.insert(&watcher); }
  void remove_watcher(BlockWatcher& watcher) { watchers_.erase(&watcher); }

 private:
  std::map<std::byte*, int64_t> bytes_;
  std::set<BlockWatcher*> watchers_;
};

}  // namespace pecia::device
