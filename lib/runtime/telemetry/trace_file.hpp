// Spans in the Trace Event Format that chrome://tracing and Perfetto read: one process per rank, one thread per lane.
// Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::runtime {

struct TraceSpan {
  int lane = 0;
  std::string name, category;
  // Since midnight, so that ranks align and a double still distinguishes nanoseconds.
  double begin_us = 0, duration_us = 0;
  std::vector<std::pair<std::string, std::string>> details;
};

struct TraceLane {
  int lane = 0;  // also the order in which viewers show them
  std::string name;
};

// `numbers`: of the whole trace; "otherData" of the file.
std::string format_trace(int rank, const std::vector<TraceLane>& lanes, const std::vector<TraceSpan>& spans,
                         const std::vector<std::pair<std::string, double>>& numbers);

}  // namespace dslaunch::runtime
