#include "launch/doctor/classify.hpp"

#include <array>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

using ports::LauncherSign;
using ports::ParentStatus;

// Each row returns its evidence, or an empty string if it does not match.
using Row = std::string (*)(const Evidence&);

std::string another_users(const Evidence& e) {
  return e.ours ? "" : "it belongs to another user";
}

std::string cannot_be_inspected(const Evidence& e) {
  return e.visible ? "" : "it cannot be inspected";
}

std::string ancestor_of_this_command(const Evidence& e) {
  return e.runs_doctor ? "it is an ancestor of this command" : "";
}

std::string job_is_alive(const Evidence& e) {
  return e.job.life == JobLife::kAlive ? e.job.evidence : "";
}

std::string in_a_service(const Evidence& e) {
  const std::string& service = e.lineage.child.service;
  return service.empty() ? "" : fmt::format("it is part of the service {}", service);
}

bool has(ParentStatus wanted, const Evidence& e) {
  return ports::parent_status(e.lineage) == wanted;
}

// A process of a job is started by its agent or by another process of the job: if the job is gone and the parent is
// neither of these, the parent is a subreaper.
bool has_its_parent(const Evidence& e) {
  const bool adopted = e.job.life == JobLife::kGone && !e.parent_is_of_job;
  return has(ParentStatus::kStarted, e) && !adopted;
}

std::string parent_is_stale(const Evidence& e) {
  if (!has_its_parent(e) || !e.parent_is_stale) return "";
  if (e.job.life == JobLife::kGone) return e.job.evidence;  // it explains why the parent is stale
  return fmt::format("its parent is stale: {}", describe_parent(e.lineage));
}

std::string parent_lives(const Evidence& e) {
  return has_its_parent(e) ? fmt::format("its parent is alive: {}", describe_parent(e.lineage)) : "";
}

std::string job_is_gone(const Evidence& e) {
  return e.job.life == JobLife::kGone ? e.job.evidence : "";
}

std::string parent_is_unclear(const Evidence& e) {
  return has(ParentStatus::kUnclear, e) ? fmt::format("{} may be its real parent", describe_parent(e.lineage)) : "";
}

// ---- from here on the process is orphaned

constexpr const char* kOrphaned = "the process that started it has exited";

const char* describe_sign(LauncherSign sign) {
  switch (sign) {
    case LauncherSign::kElasticRunId:
      return "TORCHELASTIC_RUN_ID is in its environment";
    case LauncherSign::kCrossRank:
      return "CROSS_RANK is in its environment";
    case LauncherSign::kLocalRankArgument:
      return "--local_rank is among its arguments";
    case LauncherSign::kNone:
      break;
  }
  return "";
}

std::string rank_of_a_launcher(const Evidence& e) {
  const LauncherSign sign = ports::rank_sign(e.lineage);
  if (sign == LauncherSign::kNone) return "";
  return fmt::format("{}, and it is a rank of a launcher: {}", kOrphaned, describe_sign(sign));
}

// About the leader of its process group or session.
std::string why_leader_counts(const char* what, pid_t leader, pid_t self, bool gone) {
  if (leader == self) return fmt::format("it leads its {}", what);
  if (gone) return "";
  if (leader == 0) return fmt::format("the leader of its {} is outside this container", what);
  return fmt::format("the leader of its {} is alive: pid {}", what, leader);
}

// Signs that the process was left behind on purpose.
std::vector<std::string> signs_of_intent(const Evidence& e) {
  const auto& child = e.lineage.child;
  std::vector<std::string> signs{
      child.ignores_sighup ? "it ignores SIGHUP, as nohup makes it" : "",
      why_leader_counts("session", child.session, child.identity.pid, e.lineage.session_leader_gone),
      why_leader_counts("process group", child.group, child.identity.pid, e.lineage.group_leader_gone),
      e.other_children.empty() ? ""
                               : fmt::format("it has running children: pid {}", fmt::join(e.other_children, ", "))};
  std::erase(signs, "");
  return signs;
}

std::string left_behind(const Evidence& e) {
  if (!signs_of_intent(e).empty()) return "";
  return fmt::format("{}, and so have the leaders of its process group and session", kOrphaned);
}

std::string orphaned_in_another_way(const Evidence& e) {
  return fmt::format("{}, but {}", kOrphaned, fmt::join(signs_of_intent(e), ", "));
}

// The first matching row gives the verdict. The order is part of the contract.
constexpr std::array<std::pair<Verdict, Row>, 12> kTable{{
    {Verdict::kForeign, another_users},
    {Verdict::kUnknown, cannot_be_inspected},
    {Verdict::kInUse, ancestor_of_this_command},
    {Verdict::kInUse, job_is_alive},
    {Verdict::kInUse, in_a_service},
    {Verdict::kStale, parent_is_stale},
    {Verdict::kInUse, parent_lives},
    {Verdict::kStale, job_is_gone},
    {Verdict::kUnknown, parent_is_unclear},
    {Verdict::kStale, rank_of_a_launcher},
    {Verdict::kStale, left_behind},
    {Verdict::kUnknown, orphaned_in_another_way},
}};

}  // namespace

std::string describe_parent(const ports::Lineage& lineage) {
  if (lineage.child.parent == 0) return "a process outside this container";
  return fmt::format("pid {} ({})", lineage.child.parent, lineage.parent ? lineage.parent->command : "gone");
}

Classification classify(const Evidence& evidence) {
  for (const auto& [verdict, row] : kTable) {
    if (std::string found = row(evidence); !found.empty()) return {verdict, std::move(found)};
  }
  return {};  // not reached: the last row matches everything
}

}  // namespace dslaunch::launch
