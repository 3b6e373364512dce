// The report of one run or of several: one HTML document that needs nothing else, no network either. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/report/run_history.hpp"

namespace dslaunch::launch {

// Marks a document as ours, within its first kilobyte.
inline constexpr char kReportMark[] = R"(<meta name="generator" content="dslaunch report)";

// `runs`: at least one, in the order in which they get their colours.
std::string report_page(const std::vector<RunHistory>& runs);

}  // namespace dslaunch::launch
