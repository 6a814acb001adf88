// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Converts plain values to bytes and back, for messages between the ranks of one program. This is
/// not a file format: both ends are the same build on the same kind of machine (checked at start).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/base/core/error.hpp"

namespace pecia {

class Writer {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(const T& value) { append(&value, sizeof(T)); }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(const std::vector<T>& values) {
    (*this)(static_cast<int64_t>(values.size()));
    append(values.data(), values.size() * sizeof(T));
  }
  void operator()(const std::string& text) { (*this)(std::vector<char>(text.begin(), text.end())); }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, size_t count) {
    const size_t before = bytes_.size();
    bytes_.resize(before + count);
    if (count > 0) std::memcpy(bytes_.data() + before, data, count);
  }
  std::vector<std::byte> bytes_;
};

/// Reads values in the order in which they were written. Throws InvalidArgument when bytes run out.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(T& value) { extract(&value, sizeof(T)); }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(std::vector<T>& values) {
    int64_t count = 0;
    (*this)(count);
    PECIA_CHECK(count >= 0 && static_cast<uint64_t>(count) <= bytes_.size() / sizeof(T),
                "{} elements announced, {} bytes left", count, bytes_.size());
    values.resize(count);
    extract(values.data(), values.size() * sizeof(T));
  }
  void operator()(std::string& text) {
    std::vector<char> characters;
    (*this)(characters);
    text.assign(characters.begin(), characters.end());
  }

  bool done() const { return bytes_.empty(); }

 private:
  void extract(void* data, size_t count) {
    PECIA_CHECK(count <= bytes_.size(), "{} bytes wanted, {} left", count, bytes_.size());
    if (count > 0) std::memcpy(data, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  std::span<const std::byte> bytes_;
};

/// Converts a value to bytes. Its type has `template <typename A> void visit(A& archive)`, which
/// passes the members to the archive.
template <typename T>
std::vector<std::byte> to_bytes(const T& value) {
  Writer writer;
  const_cast<T&>(value).visit(writer);
  return writer.take();
}

template <typename T>
T from_bytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  T value;
  value.visit(reader);
  PECIA_CHECK(reader.done(), "bytes left over");
  return value;
}

/// Writes or reads a member that is a vector of such values.
template <typename T>
void visit_all(Writer& writer, std::vector<T>& values) {
  writer(static_cast<int64_t>(values.size()));
  for (T& value : values) value.visit(writer);
}
template <typename T>
void visit_all(Reader& reader, std::vector<T>& values) {
  int64_t count = 0;
  reader(count);
  values.clear();
  for (int64_t i = 0; i < count; ++i) values.emplace_back().visit(reader);
}

}  // namespace pecia
