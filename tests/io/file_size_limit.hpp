// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A disk that is full, for tests of what writes files.

#include <signal.h>
#include <sys/resource.h>

namespace pecia::test {

/// While it lives no file of this process grows or is written beyond `bytes`: write fails with
/// EFBIG there, after a short count where it begins below. The same path as a full disk's ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    previous_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, previous_);
  }

 private:
  rlimit before_{};
  void (*previous_)(int) = SIG_DFL;
};

}  // namespace pecia::test
