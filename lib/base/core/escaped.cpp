// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/escaped.hpp"

#include <fmt/format.h>

namespace pecia {
namespace {

enum class LineBreaks { escaped, kept };

std::string escaped_text(std::string_view text, LineBreaks breaks) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      shown += fmt::format("\\x{:02x}", next);
      ++i;
    } else if ((byte >= ' ' && byte != 0x7f) || (byte == '\n' && breaks == LineBreaks::kept)) {
      shown += text[i];
    } else if (byte == '\n') {
      shown += "\\n";
    } else if (byte == '\r') {
      shown += "\\r";
    } else if (byte == '\t') {
      shown += "\\t";
    } else {
      shown += fmt::format("\\x{:02x}", byte);
    }
  }
  return shown;
}

}  // namespace

std::string escaped(std::string_view text) {
  return escaped_text(text, LineBreaks::escaped);
}

std::string escaped_lines(std::string_view text) {
  return escaped_text(text, LineBreaks::kept);
}

}  // namespace pecia
