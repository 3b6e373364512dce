#include "launch/jobs/job_table.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDay = 86400;

const char* condition_word(Condition condition) {
  switch (condition) {
    case Condition::kLiving:
      return "living";
    case Condition::kEnded:
      return "ended";
    case Condition::kLost:
      return "lost";
    case Condition::kElsewhere:
      return "elsewhere";
  }
  return "";
}

// "42s", "5m", "3h", "12d": the largest unit that gives at least 1.
std::string age_text(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 2 * kDay) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / kDay);
}

std::string hosts_text(const JobRecord& record) {
  if (record.hosts.empty()) return "-";
  if (record.hosts.size() == 1) return record.hosts[0].host;
  return fmt::format("{} +{}", record.hosts[0].host, record.hosts.size() - 1);
}

// The program's name without its directory, and nothing that could harm a terminal.
std::string command_text(const JobRecord& record) {
  std::vector<std::string> args = record.command;
  if (!args.empty()) args[0].erase(0, args[0].rfind('/') + 1);
  std::string text = shell_words(args);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return text;
}

Json job_json(const KnownJob& job) {
  Json json = Json::parse(record_to_json(job.record));
  json["condition"] = condition_word(job.condition);
  json["folder"] = job.dir.path;
  json["console"] = job.dir.console_file();
  return json;
}

std::string end_text(const JobEnd& end) {
  std::string text = fmt::format("{}, exit code {}", utc_text(end.when), end.exit_code);
  return end.first_cause.empty() ? text : text + ": " + printable(end.first_cause);
}

std::string rank_lines(const Json& status) {
  std::string text;
  for (const Json& rank : status.value("ranks", Json::array())) {
    std::string pid = rank.at("pid").is_null() ? "-" : std::to_string(rank.at("pid").get<long>());
    text +=
        fmt::format("  rank {:<4} {}  {}  pid {}", rank.at("rank").get<int>(),
                    printable(rank.at("host").get<std::string>()), printable(rank.at("state").get<std::string>()), pid);
    if (rank.at("cause").is_string()) text += ": " + printable(rank.at("cause").get<std::string>());
    text += "\n";
  }
  return text;
}

}  // namespace

std::vector<KnownJob> recent_jobs(const std::vector<KnownJob>& jobs, int64_t now) {
  std::vector<KnownJob> recent;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(recent), [&](const KnownJob& job) {
    if (job.condition == Condition::kLiving || job.condition == Condition::kElsewhere) return true;
    return (job.record.end ? job.record.end->when : job.record.started) > now - kDay;
  });
  return recent;
}

std::string state_word(const KnownJob& job) {
  switch (job.condition) {
    case Condition::kLiving:
      return job.record.state;
    case Condition::kEnded:
      return fmt::format("ended {}", job.record.end->exit_code);
    case Condition::kElsewhere:
      return fmt::format("{} on {}", job.record.state, job.record.supervisor.host);
    case Condition::kLost:
      break;
  }
  return "lost";
}

RunProgress progress_in(const std::string& metrics_line) {
  const Json metrics = Json::parse(metrics_line, nullptr, /*allow_exceptions=*/false);
  RunProgress progress;
  if (!metrics.is_object()) return progress;
  if (const auto step = metrics.find("step"); step != metrics.end() && step->is_number_integer()) {
    progress.step = step->get<int64_t>();
  }
  // The line of an evaluation alone has its loss.
  const auto loss = metrics.find(metrics.contains("loss") ? "loss" : "eval_loss");
  if (loss != metrics.end() && loss->is_number()) progress.loss = loss->get<double>();
  return progress;
}

std::vector<KnownJob> jobs_in_table(const std::vector<KnownJob>& jobs, const TableShape& shape) {
  std::vector<KnownJob> shown;
  size_t num_ended = 0;
  for (const auto& job : jobs) {
    const bool has_ended = job.condition == Condition::kEnded || job.condition == Condition::kLost;
    if (!has_ended || ++num_ended <= shape.max_ended) shown.push_back(job);
  }
  return shown;
}

std::string jobs_table(const std::vector<KnownJob>& jobs, const std::vector<RunProgress>& progress, size_t num_left_out,
                       int64_t now, const TableShape& shape) {
  std::vector<std::vector<std::string>> rows{{"NAME", "STATE", "STEP", "LOSS", "AGE", "HOSTS"}};
  std::set<std::string> names;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobRecord& record = jobs[i].record;
    const bool has_name = !record.name.empty() && names.insert(record.name).second;
    // A run has the name of its first job: that name now stands for the job that continues it.
    const std::string id = names.contains(record.job_id) ? record.job_id + " (earlier)" : record.job_id;
    const RunProgress at = i < progress.size() ? progress[i] : RunProgress();
    rows.push_back({printable(has_name ? record.name : id), printable(state_word(jobs[i])),
                    at.step ? std::to_string(*at.step) : "-", at.loss ? fmt::format("{:.4g}", *at.loss) : "-",
                    age_text(now - record.started), printable(hosts_text(record))});
  }
  std::vector<size_t> widths(rows[0].size() - 1);
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line += row.back();
    if (shape.width > 3 && line.size() > shape.width) line = line.substr(0, shape.width - 3) + "...";
    text += line + "\n";
  }
  if (num_left_out > 0) text += fmt::format("and {} more that have ended: dslaunch jobs --all\n", num_left_out);
  return text;
}

std::string jobs_json(const std::vector<KnownJob>& jobs, const std::vector<std::string>& statuses) {
  Json list = Json::array();
  for (size_t i = 0; i < jobs.size(); ++i) {
    Json& json = list.emplace_back(job_json(jobs[i]));
    if (i < statuses.size() && !statuses[i].empty()) json["ranks"] = Json::parse(statuses[i]).at("ranks");
  }
  return dump_json(Json{{"jobs", std::move(list)}}, 2) + "\n";
}

std::string job_details(const KnownJob& job, const std::string& status, int64_t now) {
  const JobRecord& record = job.record;
  std::string text = fmt::format("job        {}\n", printable(record.job_id));
  if (!record.name.empty()) text += fmt::format("name       {}\n", printable(record.name));
  text += fmt::format("state      {}\n", printable(state_word(job)));
  text += fmt::format("started    {} ({} ago)\n", utc_text(record.started), age_text(now - record.started));
  if (record.end) text += fmt::format("ended      {}\n", end_text(*record.end));
  if (record.restart_count > 0) text += fmt::format("restarts   {}\n", record.restart_count);
  text += fmt::format("command    {}\n", command_text(record));
  if (!record.start.words.empty()) {
    text +=
        fmt::format("started by {} {}\n", printable(record.start.program), printable(shell_words(record.start.words)));
  }
  text += fmt::format("world      {} rank(s) on {}\n", record.world_size(), printable(hosts_text(record)));
  text += fmt::format("directory  {}\n", printable(record.cwd));
  if (!record.run_dir.empty()) text += fmt::format("run dir    {}\n", printable(record.run_dir));
  if (!record.log_root.empty()) text += fmt::format("logs       {}/logs\n", printable(record.log_root));
  text += fmt::format("console    {}\n", printable(job.dir.console_file()));
  for (const auto& error : record.errors) text += fmt::format("error      {}\n", printable(error));
  for (const auto& stuck : record.stuck) text += fmt::format("stuck      {}\n", printable(describe(stuck)));
  text += fmt::format("supervisor pid {} on {}{}\n", record.supervisor.pid, printable(record.supervisor.host),
                      job.condition == Condition::kLost ? ", exited" : "");
  return status.empty() ? text : text + rank_lines(Json::parse(status));
}

}  // namespace dslaunch::launch
