// The rule of who is stale. Pure; the table that its test goes through is the contract.
#pragma once
#include <string>
#include <vector>

#include "launch/agent_mark.hpp"
#include "launch/doctor/finding.hpp"
#include "ports/parenthood.hpp"

namespace dslaunch::launch {

// Of a process that holds a port asked about or GPU memory, or that carries a job's id.
struct ProcessFacts {
  bool visible = true;       // false: /proc does not let us look into it
  bool ours = true;          // its user is this one, really and effectively
  bool runs_doctor = false;  // an ancestor of this very process
  JobLife job = JobLife::kNone;
  std::string job_id{};
  ports::Parenthood parenthood = ports::Parenthood::kAlive;
  std::string parent{};   // "pid 12 (bash)"
  std::string service{};  // systemd's; empty: none
};

struct Judgement {
  Verdict verdict = Verdict::kUnknown;
  std::string reason;
  bool parent_decides = false;  // alive only because its parent is
};

Judgement judge(const ProcessFacts& facts);

// A worker whose parent is among the findings and stale goes with it: it would only be stale a moment later.
void pass_staleness_on(std::vector<Finding>& findings);

}  // namespace dslaunch::launch
