// What the command line says of the ranks' output: which of it the terminal shows, and which files it goes to. Plain
// data and its grammar.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// Streams of each local rank, in torchrun's words: 0 none, 1 standard output, 2 standard error, 3 both.
struct StreamChoice {
  int all = 0;
  std::map<int, int> by_local_rank;  // wins
  bool has(int local_rank, Stream stream) const;
  bool any() const { return all != 0 || !by_local_rank.empty(); }
};

// "3", or "0:1,12:3" for single local ranks. Throws UserError(64) that names the option.
StreamChoice parse_stream_choice(std::string_view option, std::string_view text);

// "0,3,12". Throws UserError(64) that names the option.
std::vector<int> parse_rank_list(std::string_view option, std::string_view text);

struct OutputChoices {
  std::optional<bool> fold;      // not given: when standard output is a terminal
  StreamChoice tee, redirects;   // also to files; to files only
  std::string log_dir;           // of the files of these two; empty: the run folder's logs, or the job's
  std::string each_rank_log;     // folder for one file a rank with both streams; empty: none
  std::vector<int> local_ranks;  // that the terminal shows; empty: all
  bool save_pid = false;
};

// A line for each choice that names a local rank which is not in `there`: it chooses nothing.
std::vector<std::string> idle_choices(const OutputChoices& choices, const std::set<int>& there);

}  // namespace dslaunch::launch
