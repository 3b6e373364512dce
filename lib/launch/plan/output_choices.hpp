// The command line's choices for the ranks' output: what the terminal shows, and which files it is written to. Plain
// data and its grammar.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/color.hpp"
#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// Streams of each local rank, with torchrun's values: 0 none, 1 standard output, 2 standard error, 3 both.
struct StreamChoice {
  int all = 0;
  std::map<int, int> by_local_rank;  // takes precedence
  bool has(int local_rank, Stream stream) const;
  bool any() const { return all != 0 || !by_local_rank.empty(); }
};

// "3", or "0:1,12:3" for single local ranks. Throws UserError(64) that names the option.
StreamChoice parse_stream_choice(std::string_view option, std::string_view text);

// "0,3,12". Throws UserError(64) that names the option.
std::vector<int> parse_rank_list(std::string_view option, std::string_view text);

struct OutputChoices {
  std::optional<bool> fold;     // unset: fold a run, and on a terminal
  StreamChoice tee, redirects;  // tee: to the terminal and to files; redirects: to files only
  std::string log_dir;        // for the files of tee and redirects; empty: the logs of the run directory, or of the job
                              // directory
  std::string each_rank_log;  // directory for one file per rank with both streams; empty: none
  std::vector<int> local_ranks;  // shown by the terminal; empty: all
  bool save_pid = false;
  ColorChoice color = ColorChoice::kAuto;
  bool live = false;  // rank 0 writes the records of the live line
};

// One line for each choice that has no effect because its local rank is not in `there`.
std::vector<std::string> idle_choices(const OutputChoices& choices, const std::set<int>& there);

}  // namespace dslaunch::launch
