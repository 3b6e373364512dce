// Maps a job file and the command line to a JobConfig: the main entry point of this room. Any thread. Errors in the
// input are returned as issues, all of them at once; throw_if_bad combines them into one exception.
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
#include "config/model_defaults.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

struct LoadContext {
  int world_size = 0;  // 0: unknown; the ranks of one model are assumed, and a note says so
  ModelDefaults model;
};

struct LoadResult {
  JobConfig config;                // defaults if there are issues
  std::vector<Issue> issues;       // in the order of the file, those of the command line last
  size_t num_unlisted = 0;         // number of issues beyond kMaxIssues; if not 0, the last of `issues` states it
  std::vector<std::string> notes;  // one line each, for people: accepted, but worth reporting
  std::string batch_explanation;   // the batch triple in numbers; empty if it has no solution
  int world_size = 1;
  bool world_size_assumed = false;
  int data_ranks = 1;  // among which the pipelines of the world divide the batch; 1 if the world has no such division
  std::string source;  // the file's name in messages; empty: no file
  Settings settings{""};  // every key with value and origin; incomplete after a syntax error

  bool ok() const { return issues.empty(); }
  // 66 if the file cannot be read, 78 if the only issue is that the world has no division into pipelines, 65 for every
  // other issue, 0 without issues.
  ExitCode exit_code() const;
};

// `path` may be the text of the config (is_config_text). Empty: defaults and the command line only. A missing or
// unreadable file is an issue.
LoadResult load_file(const std::string& path, const std::vector<Override>& overrides = {},
                     const LoadContext& context = {});
// `name` is used in messages.
LoadResult load_text(std::string_view text, const std::string& name, Format format,
                     const std::vector<Override>& overrides = {}, const LoadContext& context = {});

// Throws UserError with one line per issue, unless ok().
void throw_if_bad(const LoadResult& result);

// Parses "key=value" of --set; an error (64) when '=' or the key is missing.
Override parse_set_option(std::string_view text);

}  // namespace dslaunch::config
