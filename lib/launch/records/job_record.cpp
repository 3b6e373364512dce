#include "launch/records/job_record.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "launch/records/stuck_on_host.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTimeFormat = "%Y-%m-%dT%H:%M:%SZ";

int64_t seconds_of(const std::string& text) {
  std::tm utc{};
  return ::strptime(text.c_str(), kTimeFormat, &utc) != nullptr ? ::timegm(&utc) : 0;
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

std::string text_or_empty(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

JobEnd read_end(const Json& json) {
  return {json.at("exit_code").get<int>(), seconds_of(json.at("at").get<std::string>()),
          text_or_empty(json.at("first_cause"))};
}

JobRecord read_record(const Json& json) {
  JobRecord record;
  record.job_id = json.at("job_id").get<std::string>();
  record.name = text_or_empty(json.value("name", Json()));
  record.start = start_from_json(json.value("start", Json()));
  record.kind = json.at("kind").get<std::string>() == "run" ? JobKind::kRun : JobKind::kExec;
  record.command = json.at("command").get<std::vector<std::string>>();
  for (const Json& host : json.at("hosts")) {
    record.hosts.push_back({host.at("host").get<std::string>(), host.at("ranks").get<int>()});
  }
  record.cwd = json.at("cwd").get<std::string>();
  record.run_dir = text_or_empty(json.at("run_dir"));
  record.log_root = text_or_empty(json.at("log_root"));
  record.detached = json.at("detached").get<bool>();
  record.started = seconds_of(json.at("started_at").get<std::string>());
  const Json& supervisor = json.at("supervisor");
  record.supervisor = {supervisor.at("host").get<std::string>(), supervisor.at("boot_id").get<std::string>(),
                       supervisor.at("pid").get<pid_t>(), supervisor.at("start_ticks").get<uint64_t>(),
                       supervisor.value("pid_namespace", uint64_t{0})};  // an older one's has none
  record.socket = text_or_empty(json.at("socket"));
  record.state = json.at("state").get<std::string>();
  record.restart_count = json.at("restart_count").get<int>();
  record.errors = json.value("troubles", std::vector<std::string>());  // records of older versions have none
  record.stuck = stuck_from_json(json.value("stuck", Json::array()));  // likewise
  if (json.at("end").is_object()) record.end = read_end(json.at("end"));
  return record;
}

// A damaged record may have more ranks than an int holds.
int64_t ranks_in_all(const JobRecord& record) {
  int64_t sum = 0;
  for (const auto& host : record.hosts) sum += host.num_ranks;
  return sum;
}

// False for values that no job has and that would mislead code that computes with them.
bool is_possible(const JobRecord& record) {
  const auto is_negative = [](const auto& host) { return host.num_ranks < 0; };
  if (std::any_of(record.hosts.begin(), record.hosts.end(), is_negative)) return false;
  return ranks_in_all(record) <= INT_MAX && record.supervisor.pid > 0 &&
         (!record.end || (record.end->exit_code >= 0 && record.end->exit_code <= 255));
}

}  // namespace

std::string log_path(const std::string& root, const std::string& host, int rank) {
  std::string name = host;
  std::replace(name.begin(), name.end(), '/', '_');
  return fmt::format("{}/logs/{}.{}.log", root, name, rank);
}

std::string utc_text(int64_t seconds) {
  std::time_t when = seconds;
  std::tm utc{};
  ::gmtime_r(&when, &utc);
  char text[32];
  std::strftime(text, sizeof text, kTimeFormat, &utc);
  return text;
}

int JobRecord::world_size() const {
  return static_cast<int>(std::min<int64_t>(ranks_in_all(*this), INT_MAX));
}

std::string JobRecord::host_of(int rank) const {
  for (const auto& host : hosts) {
    if (rank >= 0 && rank < host.num_ranks) return host.host;
    rank -= host.num_ranks;
  }
  return {};
}

std::string record_to_json(const JobRecord& record) {
  Json hosts = Json::array();
  for (const auto& host : record.hosts) hosts.push_back({{"host", host.host}, {"ranks", host.num_ranks}});
  Json json = {
      {"job_id", record.job_id},
      {"name", or_null(record.name)},
      {"kind", record.kind == JobKind::kRun ? "run" : "exec"},
      {"state", record.state},
      {"command", record.command},
      {"start", start_to_json(record.start)},
      {"hosts", hosts},
      {"world_size", record.world_size()},
      {"cwd", record.cwd},
      {"run_dir", or_null(record.run_dir)},
      {"log_root", or_null(record.log_root)},
      {"detached", record.detached},
      {"restart_count", record.restart_count},
      {"started_at", utc_text(record.started)},
      {"supervisor",
       {{"host", record.supervisor.host},
        {"boot_id", record.supervisor.boot_id},
        {"pid", record.supervisor.pid},
        {"start_ticks", record.supervisor.start_ticks},
        {"pid_namespace", record.supervisor.pid_namespace}}},
      {"socket", or_null(record.socket)},
      {"troubles", record.errors},
      {"stuck", stuck_to_json(record.stuck)},
      {"end", nullptr},
  };
  if (record.end) {
    json["end"] = {{"exit_code", record.end->exit_code},
                   {"at", utc_text(record.end->when)},
                   {"first_cause", or_null(record.end->first_cause)}};
  }
  // Arguments may not be valid UTF-8.
  return dump_json(json, 2) + "\n";
}

std::optional<JobRecord> record_from_json(const std::string& text) {
  try {
    JobRecord record = read_record(Json::parse(text));
    return is_possible(record) ? std::optional(std::move(record)) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dslaunch::launch
