#include "output_options.hpp"

#include "base/error.hpp"
#include "launch/plan/working_dir.hpp"

namespace dslaunch::launcher {

void add_output_options(CommandLine& line, RawOutput& raw) {
  line.group("Output");
  line.flag("--fold", raw.fold, "print equal lines of several ranks once; the default of a run, and on a terminal");
  line.flag("--no_fold", raw.no_fold, "print every rank's lines, also on a terminal");
  line.value("--local_ranks_filter", raw.local_ranks, "show only these local ranks of every host: 0,3", "RANKS");
  line.value("--color", raw.color, "colours of warnings and errors; auto: on a terminal, unless NO_COLOR is set",
             "auto|always|never");
  line.value("-t,--tee", raw.tee, "streams to files too: 0 none, 1 output, 2 errors, 3 both, or LOCAL_RANK:N,...", "N");
  line.value("-r,--redirects", raw.redirects, "streams to files only, with the same values", "N");
  line.value("--log_dir", raw.log_dir,
             "directory of these files; default: logs in the run directory or the job directory", "DIR");
  line.value("--enable_each_rank_log", raw.each_rank_log, "one file per rank with both streams", "DIR");
  line.flag("--save_pid", raw.save_pid, "print the launcher's pid and save it in the job directory");
}

ColorChoice color_choice(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const std::string value = word == "--color" ? next : word.starts_with("--color=") ? word.substr(8) : "";
    if (value == "always") return ColorChoice::kAlways;
    if (value == "never") return ColorChoice::kNever;
  }
  return ColorChoice::kAuto;
}

launch::OutputChoices read_output_choices(const RawOutput& raw) {
  if (raw.fold && raw.no_fold) throw UserError(ExitCode::kUsage, "--fold and --no_fold exclude each other");
  launch::OutputChoices to;
  if (raw.fold || raw.no_fold) to.fold = raw.fold;
  to.tee = launch::parse_stream_choice("--tee", raw.tee);
  to.redirects = launch::parse_stream_choice("--redirects", raw.redirects);
  to.log_dir = launch::absolute_path(raw.log_dir);
  // DeepSpeed's launcher passes the word None if no log is requested.
  if (raw.each_rank_log != "None") to.each_rank_log = launch::absolute_path(raw.each_rank_log);
  if (!raw.local_ranks.empty()) to.local_ranks = launch::parse_rank_list("--local_ranks_filter", raw.local_ranks);
  to.save_pid = raw.save_pid;
  to.color = parse_color_choice(raw.color);
  return to;
}

}  // namespace dslaunch::launcher
