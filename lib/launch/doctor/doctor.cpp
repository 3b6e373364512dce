#include "launch/doctor/doctor.hpp"

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "launch/doctor/examine.hpp"
#include "launch/doctor/remediation.hpp"
#include "launch/doctor/report.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::launch {
namespace {

// MASTER_PORT of the environment if set, and the default of torchrun and DeepSpeed.
std::vector<uint16_t> default_ports() {
  std::vector<uint16_t> ports;
  const char* text = std::getenv("MASTER_PORT");
  std::string_view value = text == nullptr ? "" : text;
  const auto port = parse_int<uint16_t>(value, 1);
  if (port) ports.push_back(*port);
  if (port != rendezvous::kDefaultMasterPort) ports.push_back(rendezvous::kDefaultMasterPort);
  return ports;
}

// Arguments for a remote dslaunch that apply these options on its host.
std::vector<std::string> remote_words(const DoctorOptions& options) {
  std::vector<std::string> args{"doctor", "--json"};
  auto add = [&](const char* name, std::string value) { args.insert(args.end(), {name, std::move(value)}); };
  for (uint16_t port : options.ports) add("--port", std::to_string(port));
  for (const auto& job : options.lost_jobs) add("--lost_job", job);
  if (!options.kill) return args;
  args.insert(args.end(), {"--kill", "--yes"});
  if (options.force) args.emplace_back("--force");
  add("--grace", fmt::format("{}ms", options.grace.count()));
  if (options.only) {
    // Remove files only.
    if (options.only->empty()) add("--only", "none");
    for (const auto& process : *options.only) add("--only", fmt::format("{}:{}", process.pid, process.start_ticks));
  }
  return args;
}

DoctorQuery query_of(const DoctorOptions& options) {
  return {.ports = options.ports.empty() ? default_ports() : options.ports,
          .leftover_processes = options.ports.empty(),
          .lost_jobs = options.lost_jobs,
          .shared_memory_dir = "/dev/shm",
          .temporary_dirs = temporary_dirs()};
}

RemediationChoice choice_of(const DoctorOptions& options) {
  return {.force = options.force, .ports_named = !options.ports.empty(), .only = options.only};
}

std::string count(size_t number, const char* one, const char* many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

class Rounds {
 public:
  Rounds(const DoctorOptions& options, const DoctorWorld& world) : options_(options), world_(world) {
    hosts_ = options.hosts;
    if (hosts_.empty()) hosts_.emplace_back("localhost");
  }

  DoctorResult run() {
    reports_ = visit_all(false);
    choose_all();
    bool something = num_processes_ + num_files_ > 0;
    if (!options_.kill || !something) return shown(options_.kill ? "" : advice());
    if (options_.yes) return remediated();
    world_.print(render(reports_));
    switch (world_.ask(question())) {
      case Answer::kYes:
        return remediated();
      case Answer::kNo:
        return result();
      case Answer::kInterrupted:
        return {std::move(reports_), to_int(ExitCode::kInterrupted)};
      case Answer::kNoTerminal:
        break;
    }
    throw UserError(ExitCode::kUsage,
                    "--kill asks for confirmation, and there is no terminal to ask on: nothing was ended; add "
                    "--yes to end it without asking");
  }

 private:
  DoctorResult result() {
    int code = exit_code_of(reports_);
    return {std::move(reports_), code};
  }

  // With --json, the document has the same content.
  DoctorResult shown(const std::string& closing_text) {
    if (!options_.json) world_.print(render(reports_) + closing_text);
    return result();
  }

  DoctorResult remediated() {
    reports_ = visit_all(true);
    return shown("");
  }

  void choose_all() {
    for (const auto& report : reports_) {
      chosen_.push_back(choose(report, choice_of(options_)));
      for (const auto& finding : chosen_.back()) ++(finding.is_file() ? num_files_ : num_processes_);
    }
  }

  std::string question() const {
    std::string text;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_.size() > 1 && !chosen_[i].empty()) text += fmt::format("on {}:\n", hosts_[i]);
      for (const auto& finding : chosen_[i]) text += fmt::format("  {}\n", describe(finding));
    }
    return text + fmt::format("End this ({})? [y/N] ", targets());
  }

  std::string targets() const {
    std::vector<std::string> parts;
    if (num_processes_ > 0) parts.push_back(count(num_processes_, "process", "processes"));
    if (num_files_ > 0) parts.push_back(count(num_files_, "leftover file", "leftover files"));
    return fmt::format("{}", fmt::join(parts, " and "));
  }

  std::string advice() const {
    if (num_processes_ + num_files_ == 0) return {};
    return fmt::format("stale: {}; run the same command with --kill to end it\n", targets());
  }

  // Each host once: this machine first, then all remote hosts at the same time.
  std::vector<DoctorReport> visit_all(bool kill) {
    std::vector<DoctorReport> reports(hosts_.size());
    std::vector<RemoteQuestion> questions;
    std::vector<size_t> indices;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (options_.hosts.empty() || world_.is_this_machine(hosts_[i])) {
        reports[i] = visit_this_machine(kill ? chosen_[i] : std::vector<Finding>{});
      } else {
        questions.push_back(
            {hosts_[i], remote_words(kill && !chosen_[i].empty() ? options_for_killing(i) : options_for_looking())});
        indices.push_back(i);
      }
      reports[i].host = hosts_[i];
    }
    if (questions.empty()) return reports;
    auto answers = world_.remote(questions, kill ? options_.grace : std::chrono::milliseconds(0));
    for (size_t i = 0; i < indices.size(); ++i) reports[indices[i]] = report_of(questions[i].host, answers.at(i));
    return reports;
  }

  DoctorReport visit_this_machine(const std::vector<Finding>& to_end) {
    auto remediated = remediate(to_end, options_.grace);
    DoctorReport report = examine(query_of(options_));
    report.remediated = std::move(remediated);
    return report;
  }

  static DoctorReport report_of(const std::string& host, const RemoteAnswer& answer) {
    DoctorReport failed{.host = host, .error = answer.error, .ports = {}, .findings = {}, .remediated = {}};
    if (!answer.error.empty()) return failed;
    auto reports = parse_report_json(answer.output);
    if (!reports || reports->size() != 1) {
      failed.error = "unexpected output instead of a report from its dslaunch; is it the same version?";
      return failed;
    }
    DoctorReport report = std::move(reports->front());
    report.host = host;
    return report;
  }

  DoctorOptions options_for_looking() const {
    DoctorOptions options = options_;
    options.kill = options.yes = options.force = false;
    return options;
  }

  // Only processes of this host that were shown to the user. Files are not listed: there may be thousands, more than a
  // command line holds, and nobody needs a file that has become stale in the meantime.
  DoctorOptions options_for_killing(size_t host) const {
    DoctorOptions options = options_;
    options.yes = true;
    options.only.emplace();
    for (const auto& finding : chosen_[host]) {
      if (!finding.is_file()) options.only->push_back(finding.process);
    }
    return options;
  }

  const DoctorOptions& options_;
  const DoctorWorld& world_;
  std::vector<std::string> hosts_;
  std::vector<DoctorReport> reports_;
  std::vector<std::vector<Finding>> chosen_;  // by host
  size_t num_processes_ = 0, num_files_ = 0;
};

}  // namespace

DoctorResult run_doctor(const DoctorOptions& options, const DoctorWorld& world) {
  return Rounds(options, world).run();
}

}  // namespace dslaunch::launch
