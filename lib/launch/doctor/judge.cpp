#include "launch/doctor/judge.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace dslaunch::launch {

static Judgement judge_by_parent(const ProcessFacts& facts) {
  switch (facts.parenthood) {
    case ports::Parenthood::kAlive:
      return {Verdict::kAlive, fmt::format("its parent lives: {}", facts.parent), true};
    case ports::Parenthood::kUnclear:
      return {Verdict::kUnknown, fmt::format("{} may have started it", facts.parent)};
    case ports::Parenthood::kLost:
      break;
  }
  if (!facts.service.empty()) return {Verdict::kAlive, fmt::format("it is part of the service {}", facts.service)};
  return {Verdict::kStale, "the process that started it is gone"};
}

Judgement judge(const ProcessFacts& facts) {
  if (!facts.ours) return {Verdict::kForeign, "it belongs to another user"};
  if (!facts.visible) return {Verdict::kUnknown, "we may not look into it"};
  if (facts.runs_doctor) return {Verdict::kAlive, "this command runs below it"};
  switch (facts.job) {
    case JobLife::kGone:
      return {Verdict::kStale, fmt::format("the launcher of its job {} is gone", facts.job_id)};
    case JobLife::kAlive:
      return {Verdict::kAlive, fmt::format("its job {} is running", facts.job_id)};
    case JobLife::kNone:
    case JobLife::kUnknown:
      break;
  }
  return judge_by_parent(facts);
}

static bool is_stale_parent(const Finding& finding, pid_t pid) {
  return finding.process.pid == pid && finding.verdict == Verdict::kStale;
}

void pass_staleness_on(std::vector<Finding>& findings) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& finding : findings) {
      if (!finding.parent_decides || finding.verdict == Verdict::kStale) continue;
      bool stale = std::any_of(findings.begin(), findings.end(),
                               [&](const Finding& other) { return is_stale_parent(other, finding.parent); });
      if (!stale) continue;
      finding.verdict = Verdict::kStale;
      finding.reason = fmt::format("its parent, pid {}, is stale", finding.parent);
      changed = true;
    }
  }
}

}  // namespace dslaunch::launch
