#include "launch/doctor/remediation.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

Finding process(pid_t pid, FindingKind kind, Verdict verdict, bool exempt = false) {
  Finding finding;
  finding.kind = kind;
  finding.verdict = verdict;
  finding.process = {pid, 100};
  finding.exempt = exempt;
  return finding;
}

DoctorReport mixed() {
  DoctorReport report;
  report.findings = {process(1, FindingKind::kPortHolder, Verdict::kStale),
                     process(2, FindingKind::kPortHolder, Verdict::kInUse),
                     process(3, FindingKind::kPortHolder, Verdict::kUnknown),
                     process(4, FindingKind::kPortHolder, Verdict::kForeign, true),
                     process(5, FindingKind::kPortHolder, Verdict::kInUse, true),  // our own shell
                     process(6, FindingKind::kGpuHolder, Verdict::kStale),
                     process(7, FindingKind::kGpuHolder, Verdict::kInUse),
                     process(8, FindingKind::kZombie, Verdict::kUnknown, true),
                     process(9, FindingKind::kPortHolder, Verdict::kForeign)};  // spared by its verdict alone
  Finding file;
  file.kind = FindingKind::kSharedMemory;
  file.verdict = Verdict::kStale;
  file.path = "/dev/shm/torch_1_2_3";
  report.findings.push_back(file);
  file.verdict = Verdict::kUnknown;
  file.path = "/dev/shm/nccl-unknown";
  report.findings.push_back(file);
  return report;
}

std::vector<pid_t> pids(const RemediationChoice& choice) {
  std::vector<pid_t> numbers;
  for (const auto& finding : choose(mixed(), choice)) numbers.push_back(finding.is_file() ? 0 : finding.process.pid);
  return numbers;
}

}  // namespace

TEST_CASE("without --force only stale processes are ended", "[launch][doctor]") {
  CHECK(pids({}) == std::vector<pid_t>{1, 6, 0});
}

TEST_CASE("--force also ends the user's own holders of the named ports, nothing exempt", "[launch][doctor]") {
  CHECK(pids({.force = true, .ports_named = true, .only = {}}) == std::vector<pid_t>{1, 2, 3, 6, 0});
  CHECK(pids({.force = true, .ports_named = false, .only = {}}) == std::vector<pid_t>{1, 2, 3, 6, 7, 0});
}

TEST_CASE("only the shown processes are ended, not later ones with the same pid", "[launch][doctor]") {
  CHECK(pids({.only = {{{6, 100}, {1, 99}}}}) == std::vector<pid_t>{6, 0});
  CHECK(pids({.only = {std::vector<ports::ProcessIdentity>{}}}) == std::vector<pid_t>{0});
}
