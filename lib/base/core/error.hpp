// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The project's only family of exceptions, and the checks that throw them.
///
/// A message says what is wrong, where (file, dataset or key, row, rank), and what to do about it.

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace pecia {

/// Base of every exception that the project throws. The command exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something that a user gave (command line, job file, checkpoint, prompt shard) cannot be used.
/// The command exits with 2 and has started nothing.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A caller inside the program broke a function's contract.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The request names a feature that is known but absent from this build or version. For a user it
/// is an InputError.
class Unsupported : public InputError {
 public:
  using InputError::InputError;
};

/// An error that one rank found and all ranks throw together. It is reported once, and no rank
/// waits for another.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// The operating system or a library (files, memory, MPI, HDF5) reports a failure.
class SystemError : public Error {
 public:
  using Error::Error;
};

/// A GPU, or this process's context on it, is lost: no later call on it can succeed. The process
/// ends; what is on disk is safe.
class DeviceLost : public SystemError {
 public:
  using SystemError::SystemError;
};

/// Throws `E` with a formatted message.
template <typename E, typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}

}  // namespace pecia

/// Contract check that stays on in release builds: PECIA_CHECK(n >= 0, "{} rows", n).
#define PECIA_CHECK(condition, ...) \
  (static_cast<bool>(condition)     \
       ? void()                     \
       : ::pecia::detail::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)))
