// What --kill does with a report: selects the findings to end (pure), and ends them.
#pragma once
#include <chrono>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

struct RemediationChoice {
  bool force = false;        // also end what is alive or undecidable
  bool ports_named = false;  // force is then limited to the holders of those ports
  // If set, only these processes: those shown to the user with the question.
  std::optional<std::vector<ports::ProcessIdentity>> only;
};

// The findings to end or remove, in the report's order. Never a spared one.
std::vector<Finding> choose(const DoctorReport& report, const RemediationChoice& choice);

// Ends and removes the findings. Blocks for up to `timeout` plus five seconds.
std::vector<Remediated> remediate(const std::vector<Finding>& chosen, std::chrono::milliseconds timeout);

}  // namespace dslaunch::launch
