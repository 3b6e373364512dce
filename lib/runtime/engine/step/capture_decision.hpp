// Whether capturing steps as CUDA graphs pays ("graph_harvesting": "auto"): a pure function of measured times.
//
// A gradient pass is issued to an idle device. Where the host is the slower one, the device has computed each part
// about when the host has issued it. Where the device is, it has a backlog of work then. The backlog is limited, as a
// device accepts about a thousand kernel launches ahead of time: after tens of thousands of launches both times look
// alike in either case. Therefore the end of the first forward counts too, which has far fewer.
#pragma once
#include <span>
#include <string>

#include "base/result.hpp"

namespace dslaunch::runtime::engine::step {

// From the beginning of a pass to some point in it: until the host has issued it, and until the device has computed it.
struct IssueTime {
  double host_ms = 0, device_ms = 0;
};

struct PassTiming {
  IssueTime forward;  // the first micro batch's
  IssueTime pass;     // with all backwards and reductions
};

// From this share of the device's time on the host counts as the slower one. A smaller share leaves a backlog of more
// than a tenth of the pass: enough to keep the device busy while the host issues the update and the next step.
inline constexpr double kHostBoundShare = 0.9;

// Of several passes the one that was disturbed least: the host issued it fastest. There is at least one.
PassTiming least_disturbed(std::span<const PassTiming> passes);

struct CaptureDecision {
  bool pays = false;
  PassTiming worst;  // of the rank whose host has the largest share of the device's time; others wait for it
  int rank = 0;
};

CaptureDecision decide_capture(std::span<const PassTiming> of_ranks);

// One line for the user, or for --verbose where capture does not pay. `captured`: why it is not possible.
std::string describe(const CaptureDecision& decision, int num_ranks, const Result<>& captured);

}  // namespace dslaunch::runtime::engine::step
