// The rule of who is stale: docs/doctor.md has it as a table, judge.cpp in the same order. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"
#include "launch/doctor/job_standing.hpp"
#include "ports/process_tree.hpp"

namespace dslaunch::launch {

// Of a process that holds a port asked about or GPU memory, that carries a job's id, or that is the parent of one.
struct Evidence {
  bool visible = true;       // false: /proc does not let us look into it
  bool ours = true;          // its user is this one, really and effectively
  bool runs_doctor = false;  // an ancestor of this very process
  JobStanding job{};
  ports::Lineage lineage{};
  bool parent_is_of_job = false;        // of the same job as the process
  bool parent_is_stale = false;         // whether it has started the process or not
  std::vector<pid_t> other_children{};  // its living children but for holders of the same socket
};

struct Judgement {
  Verdict verdict = Verdict::kUnknown;
  std::string evidence;  // a clause: "its parent lives: pid 12 (bash)"
  bool operator==(const Judgement&) const = default;
};

Judgement judge(const Evidence& evidence);

// "pid 12 (bash)"; what is known of the parent of such a process.
std::string describe_parent(const ports::Lineage& lineage);

}  // namespace dslaunch::launch
