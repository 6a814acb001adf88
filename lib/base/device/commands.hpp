// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A list of held-back work, in order, which can be compared with work that was enqueued before.

#include <cstddef>
#include <cstring>
#include <functional>
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

  /// The same with a list of parts, whose number is compared, too.
  template <typename Part>
  void add_list(std::function<void()> enqueue, const std::vector<Part>& parts) {
    add(std::move(enqueue), parts.size());
    for (const Part& part : parts) append(part);
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
