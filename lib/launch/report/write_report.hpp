// `dslaunch report` on run directories: the complete command except for option parsing and finding jobs.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launch {

struct ReportOptions {
  std::vector<std::string> dirs;  // of the runs; at least one
  std::string out;                // file; "-": standard output; empty: report.html, of one run in its directory
  bool json = false;              // a document about the report on standard output
};

// Writes the page and says where. A file appears complete or not at all. Throws UserError: 65 for a directory that is
// not a run's, 66 for one that cannot be read, 73 for an output that cannot be written or, without `out`, would replace
// a file that is not a report; SystemError(74) when the disk is full.
int write_report(const ReportOptions& options);

}  // namespace dslaunch::launch
