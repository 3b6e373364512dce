#include "launch/supervisor/rank_status.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_fields.hpp"
#include "base/dump_json.hpp"
#include "comm/hang_report.hpp"
#include "launch/terminal/line_deduplicator.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

Json known(int64_t value) {
  return value < 0 ? Json(nullptr) : Json(value);
}
Json milliseconds(int64_t microseconds) {
  return microseconds < 0 ? Json(nullptr) : Json(static_cast<double>(microseconds) / 1e3);
}

// The reports of the ranks' hang watches; a damaged one counts as none.
comm::RankReports reports_of(const std::map<int, RankSample>& samples, size_t world_size) {
  comm::RankReports out(world_size);
  for (const auto& [rank, sample] : samples) {
    if (sample.hang_report.empty() || static_cast<size_t>(rank) >= world_size) continue;
    try {
      out[static_cast<size_t>(rank)] = comm::decode(sample.hang_report);
    } catch (const WireError&) {
    }
  }
  // Numbers from another process: those that name no rank would be used as an index.
  const auto is_rank = [&](int rank) { return rank >= 0 && static_cast<size_t>(rank) < world_size; };
  for (auto& report : out) {
    if (!report) continue;
    std::erase_if(report->waits, [&](const comm::RankWait& wait) {
      return !std::all_of(wait.members.begin(), wait.members.end(), is_rank) ||
             !std::all_of(wait.messages.begin(), wait.messages.end(),
                          [&](const auto& each) { return is_rank(each.peer); });
    });
  }
  return out;
}

const comm::RankWait* longest_wait(const std::optional<comm::RankReport>& report) {
  if (!report || report->waits.empty()) return nullptr;
  return &*std::max_element(report->waits.begin(), report->waits.end(),
                            [](const auto& a, const auto& b) { return a.age < b.age; });
}

// What the process itself does not tell.
const char* held_state(char process_state) {
  if (process_state == 'T' || process_state == 't') return "stopped";
  return process_state == 'D' ? "blocked" : nullptr;
}

const char* state_of(const RankActivity& activity) {
  switch (activity.state) {
    case RankState::kIdle:
      return "idle";
    case RankState::kStopped:
      return "stopped";
    case RankState::kBlocked:
      return "blocked";
    case RankState::kBusy:
      break;
  }
  return "busy";
}

// Sets `state`, and of a rank that waits for others `waiting_in`, `waiting_for` and `waiting_s`.
void add_state(Json& json, const RankRecord& record, const RankSample* sample, const comm::RankReports& reports,
               const std::vector<RankActivity>& activity) {
  const auto rank = static_cast<size_t>(record.rank);
  json["activity"] = nullptr;
  json["waiting_in"] = nullptr;
  json["waiting_for"] = Json::array();
  json["waiting_s"] = nullptr;
  if (record.cause) {
    json["state"] = "ended";
    json["activity"] = spawn::describe(*record.cause);
    return;
  }
  if (record.pid <= 0 || sample == nullptr) {
    json["state"] = record.pid <= 0 ? "starting" : "no answer";
    return;
  }
  json["state"] = rank < activity.size() ? state_of(activity[rank]) : "busy";
  const auto& report = reports[rank];
  if (report && !report->activity.empty()) json["activity"] = report->activity;
  if (const auto* held = held_state(sample->process_state)) {
    json["state"] = held;
    return;
  }
  const comm::RankWait* wait = longest_wait(report);
  if (wait == nullptr) return;
  auto missing = comm::root_missing(*wait, record.rank, reports);
  if (missing.empty()) missing = comm::missing_from(*wait, record.rank, reports);
  json["state"] = "waiting";
  json["waiting_in"] = wait->what;
  json["waiting_for"] = missing;
  json["waiting_s"] = static_cast<double>(wait->age.count()) / 1e3;
}

}  // namespace

void RankStatusTable::take(const std::string& host, const std::vector<int>& ranks, NodeStatus status) {
  for (auto& sample : status.ranks) {
    if (std::find(ranks.begin(), ranks.end(), sample.rank) != ranks.end()) samples_[sample.rank] = std::move(sample);
  }
  hosts_.push_back({host, {status.load_percent, status.num_cores, status.memory_bytes, status.available_bytes}});
}

std::vector<RankSampleLine> RankStatusTable::samples(size_t world_size) const {
  std::vector<RankSampleLine> out(world_size);
  const auto reports = reports_of(samples_, world_size);
  for (const auto& [rank, sample] : samples_) {
    if (static_cast<size_t>(rank) >= world_size) continue;
    RankSampleLine& line = out[static_cast<size_t>(rank)];
    if (sample.step >= 0) line.step = sample.step;
    if (sample.step_us >= 0) line.step_ms = static_cast<double>(sample.step_us) / 1e3;
    if (sample.busy_us >= 0) line.busy_ms = static_cast<double>(sample.busy_us) / 1e3;
    if (sample.device_bytes >= 0) line.gpu_mem_bytes = sample.device_bytes;
    if (sample.resident_bytes >= 0) line.host_mem_bytes = sample.resident_bytes;
    if (const auto& report = reports[static_cast<size_t>(rank)]) line.waiting = !report->waits.empty();
  }
  return out;
}

std::string RankStatusTable::document(const std::vector<RankRecord>& records, const std::vector<RankActivity>& activity,
                                      const std::string& job_id, const std::string& job_state) const {
  const auto reports = reports_of(samples_, records.size());
  Json ranks = Json::array(), hosts = Json::array();
  for (const auto& record : records) {
    const auto found = samples_.find(record.rank);
    const RankSample* sample = found == samples_.end() ? nullptr : &found->second;
    const RankSample none;
    const RankSample& shown = sample == nullptr ? none : *sample;
    Json json = {
        {"rank", record.rank}, {"host", record.host}, {"pid", record.pid > 0 ? Json(record.pid) : Json(nullptr)}};
    const auto& report = reports[static_cast<size_t>(record.rank)];
    json["place"] = report && !report->place.empty() ? Json(report->place) : Json(nullptr);
    add_state(json, record, sample, reports, activity);
    json["step"] = known(shown.step);
    json["total_steps"] = known(shown.total_steps);
    json["step_ms"] = milliseconds(shown.step_us);
    json["busy_ms"] = milliseconds(shown.busy_us);
    json["host_mem_bytes"] = known(shown.resident_bytes);
    json["gpu_percent"] = known(shown.gpu_percent);
    json["gpu_mem_bytes"] = known(shown.gpu_bytes);
    json["gpu_total_bytes"] = known(shown.gpu_total_bytes);
    ranks.push_back(std::move(json));
  }
  for (const auto& [name, host] : hosts_) {
    hosts.push_back({{"host", name},
                     {"load", host.load_percent / 100.0},
                     {"cores", host.num_cores},
                     {"mem_bytes", host.memory_bytes},
                     {"mem_available_bytes", host.available_bytes}});
  }
  return dump_json(
      Json{{"job_id", job_id}, {"state", job_state}, {"ranks", std::move(ranks)}, {"hosts", std::move(hosts)}});
}

}  // namespace dslaunch::launch
