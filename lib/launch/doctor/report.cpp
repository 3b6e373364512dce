#include "launch/doctor/report.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/dump_json.hpp"
#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "ports/holder.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<Verdict, const char*>, 4> kVerdicts{{{Verdict::kStale, "stale"},
                                                                    {Verdict::kInUse, "in_use"},
                                                                    {Verdict::kUnknown, "unknown"},
                                                                    {Verdict::kForeign, "foreign"}}};
constexpr std::array<std::pair<FindingKind, const char*>, 9> kKinds{
    {{FindingKind::kPortHolder, "port_holder"},
     {FindingKind::kGpuHolder, "gpu_holder"},
     {FindingKind::kLeftoverProcess, "leftover_process"},
     {FindingKind::kStaleChild, "stale_child"},
     {FindingKind::kZombie, "zombie"},
     {FindingKind::kUnkillable, "unkillable"},
     {FindingKind::kSharedMemory, "shared_memory"},
     {FindingKind::kPidFile, "pid_file"},
     {FindingKind::kPrivateDir, "private_folder"}}};

template <class Table, class Value>
const char* name_of(const Table& table, Value value) {
  return std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.first == value; })->second;
}

template <class Table>
auto value_of(const Table& table, const std::string& name) {
  auto row = std::find_if(table.begin(), table.end(), [&](const auto& entry) { return name == entry.second; });
  if (row == table.end()) throw std::invalid_argument(name);
  return row->first;
}

// ---- text

std::string describe_bytes(uint64_t bytes) {
  constexpr uint64_t kMebi = 1U << 20;
  if (bytes >= kMebi * 1024) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (kMebi * 1024.0));
  if (bytes >= kMebi) return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMebi);
  return fmt::format("{} bytes", bytes);
}

const char* state_word(char state) {
  switch (state) {
    case 'T':
    case 't':
      return "stopped";
    case 'D':
      return "in an uninterruptible wait";
    case 'Z':
      return "ended";
    default:
      return "";
  }
}

std::string describe_process(const Finding& finding) {
  if (finding.process.pid < 0) return fmt::format("a process of user {}", finding.user);
  std::vector<std::string> facts{"user " + finding.user};
  if (finding.age) facts.push_back(ports::describe_age(*finding.age) + " old");
  if (*state_word(finding.state)) {
    const auto& channel = finding.wait_channel;
    facts.push_back(channel.empty() ? state_word(finding.state)
                                    : fmt::format("{} ({})", state_word(finding.state), channel));
  }
  if (!finding.job_id.empty()) facts.push_back("job " + finding.job_id);
  if (finding.gpu_bytes > 0) facts.push_back(describe_bytes(finding.gpu_bytes) + " of GPU memory");
  return fmt::format("pid {} ({}): {}", finding.process.pid, fmt::join(facts, ", "), finding.command);
}

std::string describe_file(const Finding& finding) {
  std::string age = finding.age ? ", " + ports::describe_age(*finding.age) + " old" : "";
  std::string size = finding.num_bytes > 0 ? ", " + describe_bytes(finding.num_bytes) : "";
  return fmt::format("{} (user {}{}{})", finding.path, finding.user, age, size);
}

std::string format_finding(const Finding& finding, const std::string& indent) {
  std::string word = finding.kind == FindingKind::kUnkillable ? "stuck" : name_of(kVerdicts, finding.verdict);
  std::replace(word.begin(), word.end(), '_', ' ');
  return fmt::format("{}{:<8} {}\n{}{:<8} {}\n", indent, word, describe(finding), indent, "", finding.reason);
}

bool holds_port(const Finding& finding, uint16_t port) {
  return std::find(finding.ports.begin(), finding.ports.end(), port) != finding.ports.end();
}

std::string format_port(const DoctorReport& report, const PortState& port, const std::string& indent) {
  if (!port.held) {
    return fmt::format("{}port {} is free{}\n", indent, port.port,
                       port.closing ? "; connections of a program that has ended are still closing (TIME_WAIT)" : "");
  }
  std::string text = fmt::format("{}port {} is held by\n", indent, port.port);
  for (const auto& finding : report.findings) {
    if (holds_port(finding, port.port)) text += format_finding(finding, indent + "  ");
  }
  return text;
}

std::string format_section(const DoctorReport& report, FindingKind kind, const char* title, const std::string& indent) {
  std::string text;
  for (const auto& finding : report.findings) {
    if (finding.kind == kind) text += format_finding(finding, indent + "  ");
  }
  return text.empty() ? text : fmt::format("{}{}\n{}", indent, title, text);
}

std::string shorten(const std::string& text) {
  constexpr size_t kMax = 60;
  return text.size() <= kMax ? text : text.substr(0, kMax - 3) + "...";
}

// Grouped by parent, since the parent has to reap them.
std::string format_zombies(const DoctorReport& report, const std::string& indent) {
  std::map<pid_t, std::pair<std::string, std::vector<pid_t>>> by_parent;
  for (const auto& finding : report.findings) {
    if (finding.kind != FindingKind::kZombie) continue;
    auto& [command, pids] = by_parent[finding.parent];
    command = finding.parent_command;
    pids.push_back(finding.process.pid);
  }
  std::string text;
  for (const auto& [parent, zombies] : by_parent) {
    const auto& [command, pids] = zombies;
    text += fmt::format(
        "{}{} of pid {} ({}): {}; a zombie holds only its process number, until its parent reaps it "
        "or exits\n",
        indent, pids.size() == 1 ? "zombie" : "zombies", parent, shorten(command), fmt::join(pids, ", "));
  }
  return text;
}

std::string format_remediated(const DoctorReport& report, const std::string& indent) {
  std::string text;
  for (const auto& remediated : report.remediated) {
    text += fmt::format("{}{}: {}\n", indent, remediated.outcome, describe(remediated.finding));
  }
  return text;
}

std::string format_host(const DoctorReport& report, const std::string& indent) {
  std::string text = format_remediated(report, indent);
  for (const auto& port : report.ports) text += format_port(report, port, indent);
  for (auto [kind, title] : {std::pair{FindingKind::kGpuHolder, "GPU memory is held by"},
                             {FindingKind::kLeftoverProcess, "left behind by jobs whose supervisor has exited"},
                             {FindingKind::kStaleChild, "children of stale processes, which end with them"},
                             {FindingKind::kUnkillable, "stuck in the kernel"},
                             {FindingKind::kSharedMemory, "shared memory left behind"},
                             {FindingKind::kPidFile, "pid files left behind"},
                             {FindingKind::kPrivateDir, "small files of jobs left behind"}}) {
    text += format_section(report, kind, title, indent);
  }
  return text + format_zombies(report, indent);
}

// ---- JSON

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json to_json(const Finding& finding) {
  Json json = {{"kind", name_of(kKinds, finding.kind)},
               {"verdict", name_of(kVerdicts, finding.verdict)},
               {"reason", finding.reason},
               {"spared", finding.exempt},
               {"user", finding.user},
               {"age_s", finding.age ? Json(finding.age->count()) : Json(nullptr)}};
  if (finding.is_file()) {
    json.update({{"path", finding.path}, {"bytes", finding.num_bytes}, {"job_id", text_or_null(finding.job_id)}});
    return json;
  }
  json.update({{"pid", finding.process.pid < 0 ? Json(nullptr) : Json(finding.process.pid)},
               {"start_ticks", finding.process.start_ticks},
               {"command", finding.command},
               {"state", std::string(1, finding.state)},
               {"wait_channel", text_or_null(finding.wait_channel)},
               {"job_id", text_or_null(finding.job_id)},
               {"parent", finding.parent},
               {"parent_command", text_or_null(finding.parent_command)},
               {"ports", finding.ports},
               {"gpu_bytes", finding.gpu_bytes}});
  return json;
}

std::string text_of(const Json& json, const char* name) {
  auto at = json.find(name);
  return at == json.end() || at->is_null() ? std::string() : at->get<std::string>();
}

Finding finding_from(const Json& json) {
  Finding finding;
  finding.kind = value_of(kKinds, json.at("kind").get<std::string>());
  finding.verdict = value_of(kVerdicts, json.at("verdict").get<std::string>());
  finding.reason = text_of(json, "reason");
  finding.exempt = json.at("spared").get<bool>();
  finding.user = text_of(json, "user");
  finding.job_id = text_of(json, "job_id");
  if (!json.at("age_s").is_null()) finding.age = std::chrono::seconds(json.at("age_s").get<int64_t>());
  if (json.contains("path")) {
    finding.path = text_of(json, "path");
    finding.num_bytes = json.at("bytes").get<uint64_t>();
    return finding;
  }
  finding.process.pid = json.at("pid").is_null() ? -1 : json.at("pid").get<pid_t>();
  finding.process.start_ticks = json.at("start_ticks").get<uint64_t>();
  finding.command = text_of(json, "command");
  finding.state = text_of(json, "state").empty() ? '?' : text_of(json, "state")[0];
  finding.wait_channel = text_of(json, "wait_channel");
  finding.parent = json.at("parent").get<pid_t>();
  finding.parent_command = text_of(json, "parent_command");
  finding.ports = json.at("ports").get<std::vector<uint16_t>>();
  finding.gpu_bytes = json.at("gpu_bytes").get<uint64_t>();
  return finding;
}

Json to_json(const DoctorReport& report) {
  Json ports = Json::array(), findings = Json::array(), remediated = Json::array();
  for (const auto& port : report.ports) {
    ports.push_back({{"port", port.port}, {"held", port.held}, {"closing", port.closing}});
  }
  for (const auto& finding : report.findings) findings.push_back(to_json(finding));
  for (const auto& one : report.remediated) {
    remediated.push_back({{"gone", one.gone}, {"outcome", one.outcome}, {"finding", to_json(one.finding)}});
  }
  return {{"host", report.host},
          {"error", text_or_null(report.error)},
          {"ports", ports},
          {"findings", findings},
          {"treated", remediated}};
}

DoctorReport report_from(const Json& json) {
  DoctorReport report;
  report.host = text_of(json, "host");
  report.error = text_of(json, "error");
  for (const auto& port : json.at("ports")) {
    report.ports.push_back(
        {port.at("port").get<uint16_t>(), port.at("held").get<bool>(), port.at("closing").get<bool>()});
  }
  for (const auto& finding : json.at("findings")) report.findings.push_back(finding_from(finding));
  for (const auto& one : json.at("treated")) {
    report.remediated.push_back({finding_from(one.at("finding")), one.at("gone").get<bool>(), text_of(one, "outcome")});
  }
  return report;
}

// ---- outcome

bool is_stale_process(const Finding& finding) {
  return finding.verdict == Verdict::kStale && !finding.is_file();
}

ExitCode outcome_of(const DoctorReport& report) {
  bool others = std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.kind == FindingKind::kPortHolder && finding.verdict == Verdict::kForeign;
  });
  if (others) return ExitCode::kPermission;
  bool has_problems =
      !report.error.empty() ||
      std::any_of(report.ports.begin(), report.ports.end(), [](const PortState& port) { return port.held; }) ||
      std::any_of(report.findings.begin(), report.findings.end(), is_stale_process) ||
      std::any_of(report.remediated.begin(), report.remediated.end(), [](const Remediated& one) { return !one.gone; });
  return has_problems ? ExitCode::kUnavailable : ExitCode::kSuccess;
}

}  // namespace

std::string describe(const Finding& finding) {
  return finding.is_file() ? describe_file(finding) : describe_process(finding);
}

std::string render(const std::vector<DoctorReport>& reports) {
  std::string text;
  for (const auto& report : reports) {
    bool named = reports.size() > 1 || !report.error.empty();
    if (named) text += report.host + "\n";
    if (!report.error.empty()) text += "  " + report.error + "\n";
    const std::string indent = named ? "  " : "";
    const std::string found = format_host(report, indent);
    const bool is_healthy = found.empty() && report.error.empty();
    text += is_healthy ? indent + "healthy: no stale process, nothing left behind by a job\n" : found;
  }
  return text;
}

std::string report_json(const std::vector<DoctorReport>& reports) {
  Json hosts = Json::array();
  for (const auto& report : reports) hosts.push_back(to_json(report));
  Json document = {{"exit_code", exit_code_of(reports)}, {"hosts", hosts}};
  return dump_json(document, 2) + "\n";
}

std::optional<std::vector<DoctorReport>> parse_report_json(const std::string& text) {
  try {
    Json document = Json::parse(text);
    std::vector<DoctorReport> reports;
    for (const auto& host : document.at("hosts")) reports.push_back(report_from(host));
    return reports;
  } catch (const std::exception&) {  // thrown by the library, or for an unknown word
    return std::nullopt;
  }
}

int exit_code_of(const std::vector<DoctorReport>& reports) {
  int code = 0;
  for (const auto& report : reports) code = std::max(code, to_int(outcome_of(report)));
  return code;
}

}  // namespace dslaunch::launch
