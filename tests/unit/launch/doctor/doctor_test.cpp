#include "launch/doctor/doctor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "launch/doctor/report.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

Finding stale_process(pid_t pid) {
  Finding finding;
  finding.verdict = Verdict::kStale;
  finding.process = {pid, 100};
  return finding;
}

Finding stale_file() {
  Finding finding;
  finding.kind = FindingKind::kSharedMemory;
  finding.verdict = Verdict::kStale;
  finding.path = "/dev/shm/torch_1_2_3";
  return finding;
}

// Hosts elsewhere, with something stale or without.
struct Elsewhere {
  DoctorWorld world() {
    return {.is_this_machine = [](const std::string&) { return false; },
            .remote = [this](const auto& questions, auto time) { return answers(questions, time); },
            .ask = [](const std::string&) { return Answer::kYes; },
            .print = [](const std::string&) {}};
  }
  std::vector<RemoteAnswer> answers(const std::vector<RemoteQuestion>& questions, std::chrono::milliseconds time) {
    waits.push_back(time);
    std::vector<RemoteAnswer> told;
    for (const auto& question : questions) {
      output_tail[question.host] = question.args;
      DoctorReport report;
      report.findings = stale.at(question.host);
      told.push_back({report_json({report}), ""});
    }
    return told;
  }

  const std::map<std::string, std::vector<Finding>> stale{
      {"a", {stale_process(7)}}, {"b", {stale_process(8)}}, {"c", {stale_file()}}, {"d", {}}};
  std::vector<std::chrono::milliseconds> waits;
  std::map<std::string, std::vector<std::string>> output_tail;
};

}  // namespace

TEST_CASE("the timeout of a host includes the grace of the processes it ends", "[launch][doctor]") {
  Elsewhere hosts;
  run_doctor({.hosts = {"a", "b"}, .kill = true, .grace = 2min}, hosts.world());
  CHECK(hosts.waits == std::vector<std::chrono::milliseconds>{0ms, 2min});
}

TEST_CASE("each host gets the ids of lost jobs, to examine and to end", "[launch][doctor]") {
  for (bool kill : {false, true}) {
    Elsewhere hosts;
    run_doctor({.hosts = {"a"}, .kill = kill, .yes = kill, .lost_jobs = {"J", "K"}}, hosts.world());
    const auto& args = hosts.output_tail.at("a");
    CHECK(std::count(args.begin(), args.end(), "--lost_job") == 2);
    CHECK(std::count(args.begin(), args.end(), "K") == 1);
  }
}

TEST_CASE("each host ends only the processes that were shown for it", "[launch][doctor]") {
  Elsewhere hosts;
  run_doctor({.hosts = {"a", "b", "c", "d"}, .kill = true}, hosts.world());
  const std::map<std::string, std::string> shown{{"a", "7:100"}, {"b", "8:100"}, {"c", "none"}};
  for (const auto& [host, processes] : shown) {
    const auto& args = hosts.output_tail.at(host);
    REQUIRE(std::count(args.begin(), args.end(), "--only") == 1);
    CHECK(*std::next(std::find(args.begin(), args.end(), "--only")) == processes);
  }
  const auto& args = hosts.output_tail.at("d");
  CHECK(std::count(args.begin(), args.end(), "--kill") == 0);
}
