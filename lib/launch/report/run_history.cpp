#include "launch/report/run_history.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/directory_lock.hpp"
#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "base/run_checkpoints.hpp"
#include "base/small_file.hpp"
#include "launch/plan/run_record.hpp"
#include "launch/records/job_id.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSamples = "samples.jsonl";
constexpr const char* kRunEvents = "events.jsonl";         // of rank 0
constexpr const char* kLauncherEvents = "launcher.jsonl";  // of the launcher
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Not an object: the text is damaged, or nests so deeply that writing it again would overflow the stack.
Json parse(const std::string& text) {
  constexpr size_t kMaxLevels = 64;
  return nests_deeper(text, kMaxLevels) ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::optional<double> number_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}
std::optional<int64_t> integer_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? std::optional(found->get<int64_t>()) : std::nullopt;
}
std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_plain_file(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

void append_flat(const std::string& prefix, const Json& json, std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object() || json.empty()) {
    out.emplace_back(prefix, json.is_string() ? json.get<std::string>() : dump_json(json));
    return;
  }
  for (const auto& [key, value] : json.items()) append_flat(prefix.empty() ? key : prefix + "." + key, value, out);
}

// Collects a figure's samples, rank by rank.
class FigureSamples {
 public:
  void add(double step, const Json& values) {
    const size_t num_ranks = std::max(sums_.size(), values.size());
    sums_.resize(num_ranks, 0);
    counts_.resize(num_ranks, 0);
    lowest_.resize(num_ranks, kNone);
    highest_.resize(num_ranks, kNone);
    double low = kNone, high = kNone;
    for (size_t rank = 0; rank < values.size(); ++rank) {
      if (!values[rank].is_number() && !values[rank].is_boolean()) continue;
      const double value = values[rank].is_boolean() ? (values[rank].get<bool>() ? 1 : 0) : values[rank].get<double>();
      sums_[rank] += value;
      ++counts_[rank];
      lowest_[rank] = std::fmin(lowest_[rank], value);
      highest_[rank] = std::fmax(highest_[rank], value);
      low = std::fmin(low, value);
      high = std::fmax(high, value);
    }
    if (!std::isfinite(low)) return;
    while (!spread_.empty() && spread_.back().x >= step) spread_.pop_back();
    spread_.push_back({step, high - low});
  }

  RankFigure figure(const std::string& key) const {
    RankFigure out{key, {}, lowest_, highest_, spread_};
    for (size_t rank = 0; rank < sums_.size(); ++rank) {
      out.mean.push_back(counts_[rank] > 0 ? sums_[rank] / static_cast<double>(counts_[rank]) : kNone);
    }
    return out;
  }

 private:
  std::vector<double> sums_, lowest_, highest_;
  std::vector<int64_t> counts_;
  std::vector<Point> spread_;
};

// The events of both files in order of time, applied to the history.
class Events {
 public:
  explicit Events(RunHistory& run) : run_(run) {}

  void read(const fs::path& path) {
    if (!is_plain_file(path)) return;
    std::ifstream in(path, std::ios::binary);
    std::string line;
    size_t num_damaged = 0;
    while (std::getline(in, line)) {
      Json json = parse(line);
      const bool is_event = json.is_object() && number_in(json, "time") && !text_in(json, "event").empty();
      if (is_event && text_in(json, "event") == "ranks") {
        take_ranks(json);
      } else if (is_event) {
        all_.push_back(std::move(json));
      } else if (!line.empty() && !in.eof()) {
        ++num_damaged;
      }
    }
    if (num_damaged > 0) {
      run_.notes.push_back(fmt::format("damaged lines of {}, left out: {}", path.filename().string(), num_damaged));
    }
  }

  void apply() {
    const auto time_of = [](const Json& json) { return json.at("time").get<double>(); };
    std::stable_sort(all_.begin(), all_.end(), [&](const Json& a, const Json& b) { return time_of(a) < time_of(b); });
    for (const Json& json : all_) {
      last_time_ = std::max(last_time_, time_of(json));
      apply(json, text_in(json, "event"));
    }
    for (const auto& [key, samples] : figures_) run_.ranks.push_back(samples.figure(key));
  }

  double last_time() const { return last_time_; }

 private:
  void take_ranks(const Json& json) {
    double step = 0;
    if (const auto steps = json.find("step"); steps != json.end() && steps->is_array()) {
      for (const auto& each : *steps) step = std::max(step, each.is_number() ? each.get<double>() : 0);
    }
    for (const auto& [key, values] : json.items()) {
      if (key != "step" && values.is_array()) figures_[key].add(step, values);
    }
    last_time_ = std::max(last_time_, json.at("time").get<double>());
  }

  void apply(const Json& json, const std::string& event) {
    if (event == "launch") {
      begin(json);
      run_.attempts.back().world_size = static_cast<int>(integer_in(json, "world_size").value_or(0));
      if (run_.job_id.empty()) run_.job_id = text_in(json, "job_id");
    } else if (event == "start") {
      // Without a launcher of ours, rank 0's start is the only one.
      if (run_.attempts.empty() || run_.attempts.back().first_step || run_.attempts.back().ended) begin(json);
      run_.attempts.back().first_step = integer_in(json, "step");
      run_.total_steps = integer_in(json, "total_steps").value_or(run_.total_steps);
      take_environment(json);
    } else if (event == "checkpoint") {
      if (const auto step = integer_in(json, "step"))
        run_.checkpoints.push_back({json.at("time").get<double>(), *step});
    } else if (event == "end" && !run_.attempts.empty()) {
      end(json);
    }
  }

  void begin(const Json& json) {
    RunAttempt attempt;
    attempt.began = json.at("time").get<double>();
    run_.attempts.push_back(attempt);
    take_environment(json);
  }

  // From rank 0 (steps) or from the launcher (exit code, cause), or from both.
  void end(const Json& json) {
    RunAttempt& attempt = run_.attempts.back();
    attempt.ended = json.at("time").get<double>();
    if (const auto step = integer_in(json, "step")) attempt.last_step = step;
    if (const auto code = integer_in(json, "exit_code")) attempt.exit_code = static_cast<int>(*code);
    if (const auto cause = text_in(json, "cause"); !cause.empty()) attempt.cause = cause;
    if (const auto again = json.find("restarts"); again != json.end() && again->is_boolean())
      attempt.restarts = again->get<bool>();
  }

  void take_environment(const Json& json) {
    const auto found = json.find("environment");
    if (found == json.end() || !found->is_object()) return;
    std::vector<std::pair<std::string, std::string>> flat;
    append_flat("", *found, flat);
    for (auto& entry : flat) {
      auto& all = run_.environment;
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == entry.first; });
      if (same == all.end()) {
        all.push_back(std::move(entry));
      } else {
        same->second = std::move(entry.second);
      }
    }
  }

  RunHistory& run_;
  std::vector<Json> all_;
  std::map<std::string, FigureSamples> figures_;
  double last_time_ = 0;
};

void read_metrics(const fs::path& path, RunHistory& run) {
  if (!is_plain_file(path)) {
    run.notes.push_back(fmt::format("{} is missing: there are no curves", kMetrics));
    return;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    run.notes.push_back(fmt::format("{} cannot be read: there are no curves", kMetrics));
    return;
  }
  run.curves = read_curves(in);
  const Curves& curves = run.curves;
  if (curves.num_lines == 0) run.notes.push_back(fmt::format("{} has no step yet", kMetrics));
  if (curves.is_cut_off) run.notes.push_back(fmt::format("the last line of {} is incomplete and left out", kMetrics));
  if (curves.num_damaged > 0) {
    run.notes.push_back(fmt::format("damaged lines of {}, left out: {}", kMetrics, curves.num_damaged));
  }
  if (curves.num_repeated > 0) {
    run.notes.push_back(
        fmt::format("steps that were repeated after a restart: {}; their last values are shown", curves.num_repeated));
  }
  if (const Curve* loss = curves.find("loss"); loss != nullptr && loss->num_gaps > 0) {
    run.notes.push_back(fmt::format("steps whose loss was not finite: {}; gaps in its curve", loss->num_gaps));
  }
}

void read_samples(const fs::path& path, RunHistory& run) {
  if (!is_plain_file(path)) return;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  size_t num_damaged = 0;
  while (std::getline(in, line)) {
    const Json json = parse(line);
    const auto step = json.is_object() ? integer_in(json, "step") : std::nullopt;
    if (step) {
      run.samples.push_back({*step, text_in(json, "prompt"), text_in(json, "text"), text_in(json, "reference")});
    } else if (!line.empty() && !in.eof()) {
      ++num_damaged;
    }
  }
  std::stable_sort(run.samples.begin(), run.samples.end(),
                   [](const SampleText& a, const SampleText& b) { return a.step < b.step; });
  if (num_damaged > 0) run.notes.push_back(fmt::format("damaged lines of {}, left out: {}", kSamples, num_damaged));
}

void read_config(const fs::path& path, RunHistory& run) {
  const SmallFile file = read_plain_file(path.string());
  const Json json = file.outcome.ok() ? parse(file.bytes) : Json();
  if (json.is_object()) return append_flat("", json, run.config);
  const char* what = file.outcome.ok() ? "is damaged" : "is missing";
  run.notes.push_back(fmt::format("{} {}: the page shows no config", kResolvedConfigName, what));
}

// Those of which no event is recorded: saved by hand, or by an earlier version.
void find_checkpoints(RunHistory& run) {
  std::error_code error;
  const std::string dir = checkpoints_of_run(run.dir);
  for (fs::directory_iterator at(dir.empty() ? fs::path(run.dir) / "checkpoints" : fs::path(dir), error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("step_") || name.find_first_not_of("0123456789", 5) != name.npos || name.size() > 23)
      continue;
    struct stat status {};
    if (name.size() == 5 || ::stat(at->path().c_str(), &status) != 0) continue;
    const int64_t step = std::stoll(name.substr(5));
    auto& all = run.checkpoints;
    if (std::none_of(all.begin(), all.end(), [&](const auto& each) { return each.step == step; })) {
      all.push_back({static_cast<double>(status.st_mtime), step});
    }
  }
  std::stable_sort(run.checkpoints.begin(), run.checkpoints.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  const auto repeated = std::unique(run.checkpoints.begin(), run.checkpoints.end(),
                                    [](const auto& a, const auto& b) { return a.step == b.step; });
  run.checkpoints.erase(repeated, run.checkpoints.end());  // saved again after a restart
}

void find_traces(RunHistory& run) {
  std::error_code error;
  for (fs::directory_iterator at(run.dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("trace.step_") && name.ends_with(".json")) run.traces.push_back(name);
  }
  std::sort(run.traces.begin(), run.traces.end());
}

// A directory of an earlier version, or one of whose files these are missing.
void add_unrecorded_attempt(const fs::path& metrics, const std::optional<RunRecord>& record, RunHistory& run) {
  struct stat status {};
  if (!run.attempts.empty() || ::stat(metrics.c_str(), &status) != 0 || !record) return;
  RunAttempt attempt;
  attempt.began = static_cast<double>(record->started);
  attempt.ended = static_cast<double>(status.st_mtime);
  run.attempts.push_back(attempt);
  run.notes.emplace_back("starts, failures and restarts of this run are not recorded");
}

std::string state_of(const RunHistory& run) {
  if (run.is_running) return "running";
  if (run.attempts.empty()) return "not known";
  const RunAttempt& last = run.attempts.back();
  if (last.has_failed()) return fmt::format("failed (exit code {})", *last.exit_code);
  if (last.was_stopped()) return fmt::format("stopped (exit code {})", *last.exit_code);
  if (last.exit_code || last.last_step) {
    const bool is_short = run.total_steps > 0 && last.last_step && *last.last_step < run.total_steps;
    return is_short ? "stopped" : "finished";
  }
  return "ended without a record of its end";
}

}  // namespace

std::optional<double> RunHistory::last_step() const {
  std::optional<double> last;
  for (const Curve& curve : curves.all) {
    if (!curve.points.empty()) last = std::max(last.value_or(0), curve.points.back().x);
  }
  return last;
}

bool is_run_directory(const std::string& dir) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(fs::path(dir) / name, ignored); };
  return has(kMetrics) || has(kResolvedConfigName) || has(kRunRecord) || has(kRunEvents) || has(kLauncherEvents) ||
         has("exec.json");
}

RunHistory read_run_history(const std::string& dir) {
  RunHistory run;
  run.dir = dir;
  const fs::path path(dir);
  const auto record = read_run_record(dir);
  if (record) run.job_id = record->job_id;
  std::error_code ignored;
  run.name = fs::canonical(path, ignored).filename().string();
  if (run.name.empty()) run.name = dir;
  if (record && !record->name.empty() && !is_job_id(record->name)) run.name = record->name;
  read_metrics(path / kMetrics, run);
  read_samples(path / kSamples, run);
  Events events(run);
  events.read(path / kLauncherEvents);
  events.read(path / kRunEvents);
  events.apply();
  add_unrecorded_attempt(path / kMetrics, record, run);
  read_config(path / kResolvedConfigName, run);
  find_checkpoints(run);
  find_traces(run);
  run.is_running = DirectoryLock::is_held(dir);
  run.state = state_of(run);
  // Without a recorded end, as far as is known: a launcher that was killed writes none.
  if (!run.attempts.empty() && !run.attempts.back().ended && !run.is_running && events.last_time() > 0) {
    run.attempts.back().ended = events.last_time();
  }
  return run;
}

}  // namespace dslaunch::launch
