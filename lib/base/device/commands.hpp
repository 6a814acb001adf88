// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A list of held-back work, in order, which can be compared with work that was enqueued before.

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

namespace pecia::device {

class Commands {
 public:
  /// `enqueue` must do only what follows from `parts`. These are compared byte by byte. With types
  /// that have padding, equal work may compare as different; different work never compares as
  /// equal.
  template <typename... Parts>
  void add(std::function<void()> enqueue, const Parts&... parts) {
    work_.push_back(std::move(enqueue));
    (append(parts), ...);
  }

  /// Adds to the parts of the last work. Their number must follow from its other parts.
  void append_bytes(std::span<const std::byte> parts) {
    bytes_.insert(bytes_.end(), parts.begin(), parts.end());
  }

  bool same_as(const Commands& other) const {
    return work_.size() == other.work_.size() && bytes_ == other.bytes_;
  }
  bool empty() const { return work_.empty(); }
  size_t size() const { return work_.size(); }
  void enqueue() const {
    for (const auto& work : work_) work();
  }
  void clear() {
    work_.clear();
    bytes_.clear();
  }

 private:
  template <typename Part>
  void append(const Part& part) {
    static_assert(std::is_trivially_copyable_v<Part>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof part);
    std::memcpy(bytes_.data() + at, &part, sizeof part);
  }

  std::vector<std::function<void()>> work_;
  std::vector<std::byte> bytes_;
};

}  // namespace pecia::device
