#include "launch/doctor/report.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;

namespace {

Finding holder(Verdict verdict) {
  Finding finding;
  finding.verdict = verdict;
  finding.reason = "the launcher of its job job-1 is gone";
  finding.process = {4711, 99};
  finding.user = "bob";
  finding.command = "python train.py";
  finding.job_id = "job-1";
  finding.age = std::chrono::hours(3);
  finding.state = 'T';
  finding.parent = 1;
  finding.parent_command = "init";
  finding.ports = {29500};
  finding.gpu_bytes = 3ULL << 30;
  return finding;
}

Finding segment() {
  Finding finding;
  finding.kind = FindingKind::kSharedMemory;
  finding.verdict = Verdict::kStale;
  finding.reason = "no process has it open or mapped";
  finding.user = "bob";
  finding.path = "/dev/shm/torch_1_2_3";
  finding.num_bytes = 64 << 20;
  return finding;
}

DoctorReport report_with(std::vector<Finding> findings, bool held) {
  DoctorReport report;
  report.host = "node1";
  report.ports = {{29500, held, false}};
  report.findings = std::move(findings);
  return report;
}

}  // namespace

TEST_CASE("a report survives its JSON document", "[launch][doctor]") {
  auto first = report_with({holder(Verdict::kStale), holder(Verdict::kForeign), segment()}, true);
  first.remediated = {{holder(Verdict::kStale), true, "ended"}, {segment(), false, "cannot be removed: why"}};
  first.findings[1].process.pid = -1;
  first.findings[0].state = 'D';
  first.findings[0].wait_channel = "nfs_wait_bit_killable";
  first.findings[1].age.reset();
  DoctorReport second;
  second.host = "node2";
  second.error = "no answer";
  auto back = parse_report_json(report_json({first, second}));
  REQUIRE(back);
  CHECK(*back == std::vector<DoctorReport>{first, second});
}

TEST_CASE("rejects a document that is not a report", "[launch][doctor]") {
  for (const char* text : {"", "{", "[]", "{}", R"({"hosts": [{}]})", R"({"hosts": 3})",
                           R"({"hosts": [{"host": "a", "ports": [], "treated": [],
                              "findings": [{"kind": "odd", "verdict": "stale"}]}]})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_report_json(text));
  }
}

TEST_CASE("the exit code says whether a port is held or something is stale", "[launch][doctor]") {
  CHECK(exit_code_of({report_with({}, false)}) == 0);
  CHECK(exit_code_of({report_with({segment()}, false)}) == 0);
  CHECK(exit_code_of({report_with({holder(Verdict::kInUse)}, true)}) == 69);
  CHECK(exit_code_of({report_with({holder(Verdict::kStale)}, false)}) == 69);
  CHECK(exit_code_of({report_with({holder(Verdict::kForeign)}, true)}) == 77);
  CHECK(exit_code_of({report_with({}, false), report_with({}, true)}) == 69);
  auto untouched = report_with({}, false);
  untouched.remediated = {{holder(Verdict::kStale), false, "cannot be signalled"}};
  CHECK(exit_code_of({untouched}) == 69);
  auto unreached = report_with({}, false);
  unreached.error = "no answer";
  CHECK(exit_code_of({unreached}) == 69);
}

TEST_CASE("the text names process, age, job and reason", "[launch][doctor]") {
  CHECK(render({report_with({holder(Verdict::kStale), segment()}, true)}) ==
        "port 29500 is held by\n"
        "  stale    pid 4711 (user bob, 3 h old, stopped, job job-1, 3.0 GiB of GPU memory): python train.py\n"
        "           the launcher of its job job-1 is gone\n"
        "shared memory left behind\n"
        "  stale    /dev/shm/torch_1_2_3 (user bob, 64 MiB)\n"
        "           no process has it open or mapped\n");
  auto other = report_with({}, false);
  other.host = "node2";
  CHECK_THAT(render({report_with({}, false), other}), Contains("node1\n  port 29500 is free") && Contains("node2\n"));
}

TEST_CASE("a healthy host is said to be healthy", "[launch][doctor]") {
  DoctorReport healthy;
  healthy.host = "node1";
  CHECK(render({healthy}) == "healthy: no stale process, nothing left behind by a job\n");
  DoctorReport lost;
  lost.host = "node2";
  lost.error = "it does not answer";
  CHECK(render({healthy, lost}) ==
        "node1\n  healthy: no stale process, nothing left behind by a job\nnode2\n  it does not answer\n");
}

TEST_CASE("text and JSON have the same verdict", "[launch][doctor]") {
  const std::pair<Verdict, std::pair<std::string, std::string>> args[] = {{Verdict::kForeign, {"foreign", "foreign"}},
                                                                          {Verdict::kInUse, {"in use", "in_use"}},
                                                                          {Verdict::kStale, {"stale", "stale"}},
                                                                          {Verdict::kUnknown, {"unknown", "unknown"}}};
  for (const auto& [verdict, word] : args) {
    const auto report = report_with({holder(verdict)}, true);
    CHECK_THAT(render({report}), Contains("  " + word.first + " "));
    CHECK_THAT(report_json({report}), Contains("\"verdict\": \"" + word.second + "\""));
  }
}

TEST_CASE("a process in state D is shown with its wait channel", "[launch][doctor]") {
  Finding stuck = holder(Verdict::kStale);
  stuck.state = 'D';
  stuck.wait_channel = "nfs_wait_bit_killable";
  const auto report = report_with({stuck}, true);
  CHECK_THAT(render({report}), Contains("in an uninterruptible wait (nfs_wait_bit_killable)"));
  CHECK_THAT(report_json({report}), Contains("\"wait_channel\": \"nfs_wait_bit_killable\""));
}

TEST_CASE("a port in TIME_WAIT is reported as free", "[launch][doctor]") {
  auto report = report_with({}, false);
  report.ports[0].closing = true;
  CHECK_THAT(render({report}), Contains("port 29500 is free; connections of a program that has ended"));
}

TEST_CASE("zombies are grouped by parent", "[launch][doctor]") {
  Finding zombie = holder(Verdict::kUnknown);
  zombie.kind = FindingKind::kZombie;
  zombie.ports.clear();
  Finding second = zombie;
  second.process.pid = 4712;
  CHECK_THAT(render({report_with({zombie, second}, false)}), Contains("zombies of pid 1 (init): 4711, 4712;"));
}
