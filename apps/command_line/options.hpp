// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options of a command line, as data. Behind it is CLI11, whose templates take ten seconds to
/// compile in each source that includes them: only sources that parse do.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace CLI {
class App;
}

namespace pecia::command_line {

/// Bytes, as a number or with a unit: 64KiB is 65536.
struct Size {
  uint64_t* bytes;
};

/// Where a value goes, and so how it is read. bool: a flag. Lists of numbers have commas between
/// them; an option with a list of texts may be repeated. The variable must outlive the parsing.
using Target = std::variant<bool*, int*, std::optional<int>*, int64_t*, uint64_t*,
                            std::optional<double>*, Size, std::string*, std::filesystem::path*,
                            std::vector<int64_t>*, std::vector<std::string>*>;

enum class Sign { any, positive, not_negative };
enum class Exists { either, file, folder };

struct Option {
  std::string name;  ///< "--threads"; without dashes: a positional argument
  Target into;
  std::string help;
  std::string type = {};  ///< "JOB.yaml", how the help names a value; "": CLI11's word for the type
  bool required = false;
  bool show_default = false;
  Sign sign = Sign::any;
  Exists exists = Exists::either;
  std::optional<std::pair<double, double>> range = {};  ///< of int and of optional numbers
  std::vector<std::string> among = {};                  ///< the words that are allowed; empty: any
  std::string needs = {}, excludes = {};                ///< another option's name
};

void add_option(CLI::App& app, const Option& option);

/// A subcommand of `app`. `chosen` is called while arguments are parsed, when it is the one.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& footer, const std::function<void()>& chosen);

}  // namespace pecia::command_line
