// The rules that decide whether a process is stale: the table in docs/doctor.md, in the order of classify.cpp. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"
#include "launch/doctor/job_liveness.hpp"
#include "ports/process_tree.hpp"

namespace dslaunch::launch {

// About a process that holds GPU memory or a port in the query, that carries a job id, or that is the parent of one.
struct Evidence {
  bool visible = true;       // false: /proc does not let us inspect it
  bool ours = true;          // its real and effective user are this user
  bool runs_doctor = false;  // an ancestor of this doctor process
  JobLiveness job{};
  ports::Lineage lineage{};
  bool parent_is_of_job = false;        // of the same job as the process
  bool parent_is_stale = false;         // whether or not the parent has started the process
  std::vector<pid_t> other_children{};  // its live children except holders of the same socket
};

struct Classification {
  Verdict verdict = Verdict::kUnknown;
  std::string evidence;  // a clause: "its parent is alive: pid 12 (bash)"
  bool operator==(const Classification&) const = default;
};

Classification classify(const Evidence& evidence);

// "pid 12 (bash)", or what is known about the process's parent.
std::string describe_parent(const ports::Lineage& lineage);

}  // namespace dslaunch::launch
