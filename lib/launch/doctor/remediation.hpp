// What --kill does about a report: which findings it ends (pure), and the ending.
#pragma once
#include <chrono>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

struct TreatmentChoice {
  bool force = false;        // also what is alive or cannot be told
  bool ports_named = false;  // then force goes no further than the holders of those ports
  // Only these processes, where given: what the user saw when asked.
  std::optional<std::vector<ports::ProcessIdentity>> only;
};

// The findings to end or remove, in the report's order. Never one that is spared.
std::vector<Finding> choose(const DoctorReport& report, const TreatmentChoice& choice);

// Ends and removes them. Blocks for up to `patience` and five seconds.
std::vector<Treated> treat(const std::vector<Finding>& chosen, std::chrono::milliseconds patience);

}  // namespace dslaunch::launch
