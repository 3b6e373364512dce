#include "launch/doctor/classify.hpp"

#include <catch2/catch.hpp>
#include <functional>

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;
using ports::LauncherSign;

namespace {

constexpr pid_t kSelf = 500, kShell = 400, kGoneLeader = 300;

ports::ProcessInfo process(pid_t pid, pid_t parent, pid_t group, pid_t session, const std::string& command) {
  ports::ProcessInfo info;
  info.identity = {pid, pid == 1 ? 10u : 100000u + static_cast<unsigned>(pid)};
  info.parent = parent;
  info.group = group;
  info.session = session;
  info.readable = true;
  info.command = command;
  info.name = command.substr(0, command.find(' '));
  return info;
}

// A process that `program` started from a shell's job control, and that still has that shell.
Evidence child_of_a_shell() {
  Evidence evidence;
  evidence.lineage.child = process(kSelf, kShell, kSelf, kShell, "python train.py");
  evidence.lineage.parent = process(kShell, 10, kShell, kShell, "bash");
  return evidence;
}

using Change = std::function<void(Evidence&)>;

// Adopted by this pid 1. It was started by a script in a session of its own: the leaders of group and session are gone.
Evidence under(
    const std::string& init, const Change& change = [](Evidence&) {}) {
  Evidence evidence;
  evidence.lineage = {.child = process(kSelf, 1, kGoneLeader, kGoneLeader, "python train.py"),
                      .parent = process(1, 0, 1, 1, init),
                      .group_leader_gone = true,
                      .session_leader_gone = true};
  change(evidence);
  return evidence;
}

// setsid: leads both.
void lead_session(Evidence& evidence) {
  evidence.lineage.child.group = evidence.lineage.child.session = kSelf;
  evidence.lineage.group_leader_gone = evidence.lineage.session_leader_gone = false;
}

// As a direct child of pid 1.
void join_init(Evidence& evidence) {
  evidence.lineage.child.group = evidence.lineage.child.session = 1;
  evidence.lineage.group_leader_gone = evidence.lineage.session_leader_gone = false;
}

Change sign(LauncherSign value) {
  return [value](Evidence& evidence) { evidence.lineage.child.launcher_sign = value; };
}

// Where a launcher gives each rank a session of its own.
Change session_and_sign(LauncherSign value) {
  return [value](Evidence& evidence) {
    lead_session(evidence);
    evidence.lineage.child.launcher_sign = value;
  };
}

Change in_job(JobLife life) {
  return [life](Evidence& evidence) { evidence.job = {life, "J", life == JobLife::kUnknown ? "" : "as its job says"}; };
}

Evidence with(Evidence evidence, const Change& change) {
  change(evidence);
  return evidence;
}

struct Row {
  const char* who;
  Evidence evidence;
  Verdict verdict;
  const char* says;
};

const std::string kSystemd = "systemd", kBash = "bash /start.sh", kTini = "tini -- sleep 1d",
                  kTorchrun = "/usr/bin/python3 /usr/local/bin/torchrun train.py";

// docs/doctor.md, "Stale processes": one row of this table for each way a process comes to be where it is.
const Row kRows[] = {
    {"another user's orphan", under(kSystemd, [](Evidence& e) { e.ours = false; }), Verdict::kForeign, "another user"},
    {"another user's rank of a dead job",
     with(under(kSystemd, [](Evidence& e) { e.ours = false; }), in_job(JobLife::kGone)), Verdict::kForeign,
     "another user"},
    {"one out of sight", {.visible = false}, Verdict::kUnknown, "cannot be inspected"},
    {"the shell we run in", under(kSystemd, [](Evidence& e) { e.runs_doctor = true; }), Verdict::kInUse,
     "it is an ancestor of this command"},
    {"a rank of a live job of ours", with(child_of_a_shell(), in_job(JobLife::kAlive)), Verdict::kInUse,
     "as its job says"},
    {"an orphan within a live job of ours", under(kSystemd, in_job(JobLife::kAlive)), Verdict::kInUse,
     "as its job says"},
    {"a systemd service", under(kSystemd, [](Evidence& e) { e.lineage.child.service = "jupyter.service"; }),
     Verdict::kInUse, "part of the service jupyter.service"},
    {"a child of a living shell", child_of_a_shell(), Verdict::kInUse, "its parent is alive: pid 400 (bash)"},
    {"a data loader of a living program",
     with(child_of_a_shell(), [](Evidence& e) { e.lineage.child.group = e.lineage.child.session = kShell; }),
     Verdict::kInUse, "its parent is alive: pid 400 (bash)"},
    {"a data loader of a stale rank", with(child_of_a_shell(), [](Evidence& e) { e.parent_is_stale = true; }),
     Verdict::kStale, "its parent is stale: pid 400 (bash)"},
    {"a rank of a lost job below a stale agent",
     with(with(child_of_a_shell(), in_job(JobLife::kGone)),
          [](Evidence& e) { e.parent_is_of_job = e.parent_is_stale = true; }),
     Verdict::kStale, "as its job says"},
    {"a rank of a lost job, adopted by a subreaper", with(child_of_a_shell(), in_job(JobLife::kGone)), Verdict::kStale,
     "as its job says"},
    {"a rank of a lost job", under(kSystemd, in_job(JobLife::kGone)), Verdict::kStale, "as its job says"},
    {"one that a lost job has left in a session of its own",
     with(under(kSystemd, lead_session), in_job(JobLife::kGone)), Verdict::kStale, "as its job says"},
    {"a background job of a script whose shell is gone", under(kSystemd), Verdict::kStale,
     "and so have the leaders of its process group and session"},
    {"the same in a container", under(kBash), Verdict::kStale, "and so have the leaders"},
    {"the same, of a job that cannot be judged", under(kSystemd, in_job(JobLife::kUnknown)), Verdict::kStale,
     "and so have the leaders"},
    {"nohup in a script", under(kSystemd, [](Evidence& e) { e.lineage.child.ignores_sighup = true; }),
     Verdict::kUnknown, "but it ignores SIGHUP, as nohup makes it"},
    {"nohup torchrun whose shell has exited: it handles SIGHUP itself",
     under(kSystemd,
           [](Evidence& e) {
             e.other_children = {501, 502};
           }),
     Verdict::kUnknown, "but it has running children: pid 501, 502"},
    {"setsid", under(kSystemd, lead_session), Verdict::kUnknown, "it leads its session, it leads its process group"},
    {"disown: job control gave it a process group",
     under(kSystemd,
           [](Evidence& e) {
             e.lineage.child.group = kSelf;
             e.lineage.group_leader_gone = false;
           }),
     Verdict::kUnknown, "but it leads its process group"},
    {"the orphan of a command in a shell that lives",
     under(kSystemd,
           [](Evidence& e) {
             e.lineage.child.session = kShell;
             e.lineage.session_leader_gone = false;
           }),
     Verdict::kUnknown, "the leader of its session is alive: pid 400"},
    {"torchrun's leftover", under(kSystemd, session_and_sign(LauncherSign::kElasticRunId)), Verdict::kStale,
     "it is a rank of a launcher: TORCHELASTIC_RUN_ID is in its environment"},
    {"DeepSpeed's leftover", under(kSystemd, sign(LauncherSign::kCrossRank)), Verdict::kStale,
     "CROSS_RANK is in its environment"},
    {"a leftover of torch.distributed.launch", under(kSystemd, session_and_sign(LauncherSign::kLocalRankArgument)),
     Verdict::kStale, "--local_rank is among its arguments"},
    {"a hand-exported RANK, setsid", under(kSystemd, session_and_sign(LauncherSign::kNone)), Verdict::kUnknown,
     "it leads its session"},
    {"the rank of a launcher that lives", with(child_of_a_shell(), sign(LauncherSign::kElasticRunId)), Verdict::kInUse,
     "its parent is alive"},
    // Containers. As pid 1 a shell or an init may have started what is below it.
    {"bash as pid 1: DeepSpeed's leftover in its session",
     under(kBash, [](Evidence& e) { join_init(e), sign(LauncherSign::kCrossRank)(e); }), Verdict::kStale, "CROSS_RANK"},
    {"bash as pid 1: torchrun's leftover", under(kBash, session_and_sign(LauncherSign::kElasticRunId)), Verdict::kStale,
     "TORCHELASTIC_RUN_ID"},
    {"bash as pid 1: its start script gave --local_rank",
     under(kBash, [](Evidence& e) { join_init(e), sign(LauncherSign::kLocalRankArgument)(e); }), Verdict::kInUse,
     "its parent is alive: pid 1 (bash /start.sh)"},
    {"bash as pid 1: a server of the start script", under(kBash, join_init), Verdict::kInUse,
     "its parent is alive: pid 1 (bash /start.sh)"},
    {"bash as pid 1: a child that has called setsid itself, however late", under(kBash, lead_session),
     Verdict::kUnknown, "pid 1 (bash /start.sh) may be its real parent"},
    {"tini as pid 1: a leftover with --local_rank", under(kTini, session_and_sign(LauncherSign::kLocalRankArgument)),
     Verdict::kStale, "--local_rank"},
    {"tini as pid 1: its program", under(kTini, lead_session), Verdict::kUnknown, "may be its real parent"},
    {"torchrun as pid 1: its rank", under(kTorchrun, session_and_sign(LauncherSign::kElasticRunId)), Verdict::kInUse,
     "its parent is alive: pid 1"},
    {"torchrun as pid 1: a data loader whose rank is gone", under(kTorchrun, sign(LauncherSign::kElasticRunId)),
     Verdict::kStale, "TORCHELASTIC_RUN_ID"},
    {"Python as pid 1: it may be a launcher", under("python3 main.py", session_and_sign(LauncherSign::kElasticRunId)),
     Verdict::kUnknown, "pid 1 (python3 main.py) may be its real parent"},
    {"Python as pid 1: what a lost job has left", with(under("python3 main.py", lead_session), in_job(JobLife::kGone)),
     Verdict::kStale, "as its job says"},
    {"sleep as pid 1: torchrun's leftover", under("sleep infinity", session_and_sign(LauncherSign::kElasticRunId)),
     Verdict::kStale, "TORCHELASTIC_RUN_ID"},
    {"sleep as pid 1: setsid", under("sleep infinity", lead_session), Verdict::kUnknown, "it leads its session"},
    {"docker exec: a parent outside of the container", under("", [](Evidence& e) { e.lineage.child.parent = 0; }),
     Verdict::kUnknown, "a process outside this container may be its real parent"},
};

}  // namespace

TEST_CASE("classifies processes by their evidence", "[launch][doctor]") {
  for (const auto& row : kRows) {
    CAPTURE(row.who);
    const Classification classification = classify(row.evidence);
    CHECK(classification.verdict == row.verdict);
    CHECK_THAT(classification.evidence, Contains(row.says));
  }
}
