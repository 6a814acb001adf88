// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/printable.hpp"

#include "lib/io/utf8.hpp"

namespace pecia::app {

std::string printable(std::string_view text, size_t max_bytes) {
  std::string shown = io::fitted_utf8(text, max_bytes);
  if (text.size() > max_bytes) shown += "…";
  for (char& c : shown)
    if ((c >= 0 && c < ' ' && c != '\n') || c == '\x7f') c = '?';
  return shown;
}

}  // namespace pecia::app
