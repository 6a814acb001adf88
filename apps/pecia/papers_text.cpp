// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/papers_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pecia::app {
namespace {

using simulation::papers::Constant, simulation::papers::Paper, simulation::papers::Row;

constexpr size_t num_columns = 7;
using Line = std::array<std::string, num_columns>;

std::string number(const std::optional<double>& value, const std::string& unit) {
  return value ? fmt::format("{:.4g}{}{}", *value, unit.empty() ? "" : " ", unit) : "–";
}

std::string published(const Row& row) {
  if (!row.published) return "not at hand";
  return row.published_to ? fmt::format("{:.4g} to {:.4g}", *row.published, *row.published_to)
                          : number(row.published, row.unit);
}

std::string percent(const std::optional<double>& share, const char* form) {
  return share ? fmt::format(fmt::runtime(form), 100 * *share) : "–";
}

Line line_of(const Row& row) {
  return {row.what + (row.fitted ? " *" : ""),
          row.setting,
          published(row),
          number(row.ours, row.unit),
          percent(row.error(), "{:+.1f} %"),
          percent(row.allowed, "{:.0f} %"),
          std::string(name_of(row.how))};
}

/// In characters, of which many have several bytes.
size_t width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

std::string table(const std::vector<Line>& lines) {
  std::array<size_t, num_columns> widths{};
  for (const Line& line : lines)
    for (size_t i = 0; i < num_columns; ++i) widths[i] = std::max(widths[i], width(line[i]));
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (size_t i = 0; i < num_columns; ++i)
      row += "  " + line[i] + std::string(widths[i] - width(line[i]), ' ');
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string text_of(const Constant& constant) {
  return fmt::format("  * {}: {:.4g}{}{}, by {}{}\n", constant.name, constant.value,
                     constant.unit.empty() ? "" : " ", constant.unit, constant.rows,
                     constant.largest_share
                         ? fmt::format("; {:.0f} % of that figure", 100 * *constant.largest_share)
                         : "");
}

std::string text_of(const Paper& paper) {
  std::vector<Line> lines{{"figure", "setting", "published", "here", "error", "may be", "how"}};
  std::vector<std::string> notes;
  for (const Row& row : paper.rows) {
    lines.push_back(line_of(row));
    std::string note =
        row.command.empty() ? row.note : fmt::format("{} ({})", row.note, row.command);
    if (!row.measured_on.empty())
      note = fmt::format("{}: {}; {}, {}", row.what, note, row.measured_on, row.page);
    if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  }
  std::string text =
      fmt::format("{}: {}\n  {}\n{}", paper.name, paper.title, paper.machine, table(lines));
  for (const Constant& constant : paper.constants) text += text_of(constant);
  for (const auto& claim : paper.claims)
    text += fmt::format("  {}: {}\n", claim.holds ? "holds" : "DOES NOT HOLD", claim.text);
  for (const std::string& note : notes) text += fmt::format("  note: {}\n", note);
  return text;
}

}  // namespace

std::string papers_text(const std::vector<Paper>& papers) {
  std::string text;
  for (const Paper& paper : papers) text += (text.empty() ? "" : "\n") + text_of(paper);
  return text;
}

}  // namespace pecia::app
