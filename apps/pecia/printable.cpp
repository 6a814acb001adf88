// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/printable.hpp"

#include "lib/base/core/escaped.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::app {
namespace {

std::string fitted(std::string_view text, size_t max_bytes) {
  return io::fitted_utf8(text, max_bytes) + (text.size() > max_bytes ? "…" : "");
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  return fitted(escaped(text), max_bytes);
}

std::string printable_lines(std::string_view text, size_t max_bytes) {
  return fitted(escaped_lines(text), max_bytes);
}

}  // namespace pecia::app
