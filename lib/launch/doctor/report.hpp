// Doctor's reports as text for people and as JSON for programs and for the answer of a remote host. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

// Names hosts only if there are several reports or one that failed. Ends without advice on next steps.
std::string render(const std::vector<DoctorReport>& reports);

// One line per finding, as listed in the question before --kill.
std::string describe(const Finding& finding);

// {"exit_code": N, "hosts": [{"host": ..., "error": null, "ports": [...], "findings": [...], "treated": [...]}]}
std::string report_json(const std::vector<DoctorReport>& reports);

// The reports in such a document; empty if it is not one.
std::optional<std::vector<DoctorReport>> parse_report_json(const std::string& text);

// 0: no port in the query is held and no process is stale. 69: a port is held, a process is stale (leftover files alone
// do no harm), something could not be ended, or a host was not reached. 77: one of the ports is held by another user.
int exit_code_of(const std::vector<DoctorReport>& reports);

}  // namespace dslaunch::launch
