// The options of `run` and `exec` for the destination of the ranks' output.
#pragma once
#include <string>
#include <vector>

#include "command_line.hpp"
#include "launch/plan/output_choices.hpp"

namespace dslaunch::launcher {

struct RawOutput {
  std::string tee = "0", redirects = "0", log_dir, each_rank_log, local_ranks, color = "auto";
  bool fold = false, no_fold = false, save_pid = false;
};

void add_output_options(CommandLine& line, RawOutput& raw);
// The value of --color, for messages that precede the reading of the command line, or are about it; a value that is
// none, or none at all: auto.
ColorChoice color_choice(const std::vector<std::string>& arguments);
// Throws UserError(64). Paths become absolute.
launch::OutputChoices read_output_choices(const RawOutput& raw);

}  // namespace dslaunch::launcher
