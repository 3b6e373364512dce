#include "launch/doctor/doctor.hpp"

#include <catch2/catch.hpp>

#include "launch/doctor/report.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

// Hosts elsewhere, each with a stale process.
struct Elsewhere {
  DoctorWorld world() {
    return {.is_this_machine = [](const std::string&) { return false; },
            .remote =
                [this](const auto& hosts, const auto&, std::chrono::milliseconds time) {
                  waits.push_back(time);
                  std::vector<RemoteAnswer> answers;
                  for (const auto& host : hosts)
                    answers.push_back({report_json({{.host = host, .findings = {stale}}}), ""});
                  return answers;
                },
            .ask = [](const std::string&) { return Answer::kYes; },
            .tell = [](const std::string&) {}};
  }

  const Finding stale = [] {
    Finding finding;
    finding.verdict = Verdict::kStale;
    finding.process = {7, 100};
    return finding;
  }();
  std::vector<std::chrono::milliseconds> waits;
};

}  // namespace

TEST_CASE("hosts have the grace of what they end on top of their time to answer", "[launch][doctor]") {
  Elsewhere hosts;
  run_doctor({.hosts = {"a", "b"}, .kill = true, .grace = 2min}, hosts.world());
  CHECK(hosts.waits == std::vector<std::chrono::milliseconds>{0ms, 2min});
}
