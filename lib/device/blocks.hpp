// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which blocks of a device's memory there are, for those who tell somebody else about them: a
/// library that transfers memory wants to know whole blocks, and before one goes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace pecia::device {

/// Is told before a block's memory is freed, and may wait for work that uses it.
class BlockWatcher {
 public:
  virtual ~BlockWatcher() = default;
  virtual void leaves(const std::byte* block) noexcept = 0;
};

/// Written by Buffer, the only owner of blocks. One thread.
class Blocks {
 public:
  void add(std::byte* data, int64_t bytes) { bytes_[data] = bytes; }
  void remove(std::byte* data) noexcept {
    for (BlockWatcher* const watcher : watchers_) watcher->leaves(data);
    bytes_.erase(data);
  }

  /// The block that all of `bytes` lie in; empty where there is none.
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
