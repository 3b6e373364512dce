// `report`: runs, found by job or by directory, as one HTML page.
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "commands.hpp"
#include "launch/report/write_report.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

struct ReportWords {
  std::vector<std::string> runs;
  launch::ReportOptions report;
};

std::optional<ReportWords> read_report_options(const Arguments& arguments) {
  ReportWords words;
  CommandLine line(
      "dslaunch report", "usage: dslaunch report [options] JOB|DIR...",
      "  dslaunch report last                       the newest job's run, to report.html in its directory\n"
      "  dslaunch report runs/a runs/b --out ab.html  two runs compared\n"
      "One HTML page that needs no network: curves, starts, failures and checkpoints over time, ranks, config\n"
      "and environment. JOB is a name (--name), an id or a unique prefix of one, or 'last'; DIR a run\n"
      "directory.\n");
  line.app().add_option("JOB|DIR", words.runs, "the runs; a run directory wins over a job of the same name");
  line.value("--out", words.report.out,
             "the page; default: report.html, of one run in its directory; -: standard output", "FILE.html");
  line.flag("--json", words.report.json, "one JSON document about the report on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'report'");
  if (words.runs.empty()) usage_error("which run? dslaunch report JOB|DIR...; 'last' is the newest job");
  if (words.report.json && words.report.out == "-") usage_error("--json and --out - exclude each other");
  return words;
}

}  // namespace

int report_command(const Arguments& arguments) {
  auto words = read_report_options(arguments);
  if (!words) return 0;
  for (const auto& name : words->runs) words->report.dirs.push_back(run_directory(name));
  return launch::write_report(words->report);
}

}  // namespace dslaunch::launcher
