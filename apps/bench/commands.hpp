// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The subcommands. Each is one file, or a folder, with one add_… function, which declares its
/// options and its body.

#include "apps/bench/support/command.hpp"

namespace pecia::bench {

void add_comm(CLI::App& app, Chosen& chosen);
void add_decode(CLI::App& app, Chosen& chosen);
void add_demand(CLI::App& app, Chosen& chosen);
void add_gap(CLI::App& app, Chosen& chosen);
void add_goodput(CLI::App& app, Chosen& chosen);
void add_mixed(CLI::App& app, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_pace(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_prefill(CLI::App& app, Chosen& chosen);
void add_products(CLI::App& app, Chosen& chosen);
void add_schedule(CLI::App& app, Chosen& chosen);
void add_simulation(CLI::App& app, Chosen& chosen);
void add_writers(CLI::App& app, Chosen& chosen);

}  // namespace pecia::bench
