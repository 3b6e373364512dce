// A step that was measured, as text for a log. Pure; any thread.
#pragma once
#include <string>
#include <vector>

#include "runtime/pipeline/timeline.hpp"

namespace dslaunch::runtime::pipeline {

// The lines of a report: the table of format_table, the bubble beside that of a simulation with the measured times and
// transfers that take none, and for each stage how long it waits and the mean times of its actions. `timeline`: in
// milliseconds, the computations of a step of plan_schedule(kind, ...).
std::vector<std::string> describe_measured_step(const Timeline& timeline, ScheduleKind kind);

}  // namespace dslaunch::runtime::pipeline
