// A job file and the command line in, a JobConfig out: the room's front door. Any thread. Bad input is returned as
// issues, all of them at once; throw_if_bad makes one error of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_code.hpp"
#include "config/document.hpp"
#include "config/issue.hpp"
#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

struct LoadContext {
  int world_size = 0;  // data-parallel ranks; 0: not known, 1 is assumed and a note says so
};

struct LoadResult {
  JobConfig config;                // its defaults where there are issues
  std::vector<Issue> issues;       // in the order of the file, the command line's last
  size_t num_unlisted = 0;         // that kMaxIssues leaves out; the last of `issues` says so then
  std::vector<std::string> notes;  // one line each, for people: accepted, but worth saying
  std::string batch_explanation;   // the batch triple in numbers; empty where it has no solution
  int world_size = 1;              // that the batch triple was solved for
  bool world_size_assumed = false;
  std::string source;     // the file as messages name it; empty: no file
  Settings settings{""};  // every key with value and origin; incomplete after a syntax error

  bool ok() const { return issues.empty(); }
  // 66 where the file cannot be read, 65 for every other issue, 0 without one.
  ExitCode exit_code() const;
};

// An empty path stands for no file: defaults and the command line. A missing or unreadable file is an issue.
LoadResult load_file(const std::string& path, const std::vector<Override>& overrides = {},
                     const LoadContext& context = {});
// `name` stands in messages.
LoadResult load_text(std::string_view text, const std::string& name, Format format,
                     const std::vector<Override>& overrides = {}, const LoadContext& context = {});

// UserError with every issue on a line of its own, unless ok().
void throw_if_bad(const LoadResult& result);

// What --steps and --epochs of the command line set. One of them alone says how long the run is, whatever the file says
// of the other; of both, whichever comes first ends it.
std::vector<Override> end_of_run(const std::optional<std::string>& steps, const std::optional<std::string>& epochs);

// "key=value" of --set; an error (64) when there is no '=' or no key.
Override parse_set_option(std::string_view text);

}  // namespace dslaunch::config
