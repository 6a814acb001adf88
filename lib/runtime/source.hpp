#pragma once
/// Which request a replica takes next, and what an earlier run already did of it.

#include <optional>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/runtime/inputs.hpp"

namespace pecia::runtime {

/// The unfinished requests in the job's order. All replicas have the same list and take from it by
/// one shared counter, so uneven work evens out.
class Source {
 public:
  /// `results` as the run found it; `counter` is shared by all replicas. All outlive this object.
  Source(const Inputs& inputs, const io::ResultsFile& results, Order order,
         comm::SharedCounter& counter);

  /// The next request; absent when none is left.
  std::optional<Request> take();

  const std::vector<const InputRequest*>& open_requests() const { return open_; }

 private:
  const Inputs& inputs_;
  const io::ResultsFile& results_;
  comm::SharedCounter& counter_;
  std::vector<const InputRequest*> open_;
  bool exhausted_ = false;
};

}  // namespace pecia::runtime
