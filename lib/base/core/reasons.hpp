// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pecia {

/// Why automatic values became what they are, in the order in which people read it.
class Reasons {
 public:
  void add(std::string reason) { all_.push_back(std::move(reason)); }
  void add_first(std::string reason) { all_.insert(all_.begin(), std::move(reason)); }

  bool empty() const { return all_.empty(); }
  /// "prefill ring: the only one for CP 2; decode pass_q: …"
  std::string text() const {
    std::string text;
    for (const std::string& reason : all_) text += (text.empty() ? "" : "; ") + reason;
    return text;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace pecia
