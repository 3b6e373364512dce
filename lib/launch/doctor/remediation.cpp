#include "launch/doctor/remediation.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "launch/doctor/leftover_files.hpp"
#include "launch/process/end_processes.hpp"

namespace dslaunch::launch {
namespace {

bool forced(const Finding& finding, const RemediationChoice& choice) {
  if (!choice.force || finding.is_file()) return false;
  return finding.kind == FindingKind::kPortHolder || !choice.ports_named;
}

bool wanted(const Finding& finding, const RemediationChoice& choice) {
  if (finding.exempt || finding.verdict == Verdict::kForeign) return false;
  if (finding.verdict != Verdict::kStale && !forced(finding, choice)) return false;
  if (finding.is_file() || !choice.only) return true;
  return std::find(choice.only->begin(), choice.only->end(), finding.process) != choice.only->end();
}

}  // namespace

std::vector<Finding> choose(const DoctorReport& report, const RemediationChoice& choice) {
  std::vector<Finding> chosen;
  std::copy_if(report.findings.begin(), report.findings.end(), std::back_inserter(chosen),
               [&](const Finding& finding) { return wanted(finding, choice); });
  return chosen;
}

std::vector<Remediated> remediate(const std::vector<Finding>& chosen, std::chrono::milliseconds timeout) {
  std::vector<ports::ProcessIdentity> processes;
  for (const auto& finding : chosen) {
    if (!finding.is_file()) processes.push_back(finding.process);
  }
  auto outcomes = end_processes(processes, timeout);
  std::vector<Remediated> remediated;
  size_t next = 0;
  for (const auto& finding : chosen) {
    if (finding.is_file()) {
      const Result<> removed = remove_leftover(finding);
      remediated.push_back(
          {finding, removed.ok(), removed.ok() ? "removed" : fmt::format("cannot be removed: {}", removed.error())});
    } else {
      const auto& outcome = outcomes[next++];
      remediated.push_back({finding, outcome.gone, outcome.text});
    }
  }
  return remediated;
}

}  // namespace dslaunch::launch
