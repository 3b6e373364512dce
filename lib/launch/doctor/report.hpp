// Doctor's reports as text for people and as JSON for programs and for the way back from a remote host. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

// Hosts are named only where there are several reports or one that failed. Ends without advice on what to do next.
std::string render(const std::vector<DoctorReport>& reports);

// One line a finding: what the question before --kill lists.
std::string describe(const Finding& finding);

// {"exit_code": N, "hosts": [{"host": ..., "error": null, "ports": [...], "findings": [...], "treated": [...]}]}
std::string report_json(const std::vector<DoctorReport>& reports);

// The reports in such a document; empty when it is something else.
std::optional<std::vector<DoctorReport>> parse_report_json(const std::string& text);

// 0: no port that was asked about is held and nobody is stale. 69: a port is held, a stale process is there (leftover
// files alone do no harm), something could not be ended, or a host was not reached. 77: one of the ports is another
// user's.
int exit_code_of(const std::vector<DoctorReport>& reports);

}  // namespace dslaunch::launch
