#include "launch/supervisor/launcher_events.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/unique_fd.hpp"
#include "base/unshare_file.hpp"
#include "base/wall_clock.hpp"
#include "base/write_all.hpp"
#include "launch/plan/git_commit.hpp"
#include "launch/supervisor/failure_summary.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// A key that no rank reports is left out.
template <class T>
void add_column(Json& json, const char* key, const std::vector<RankSampleLine>& ranks,
                std::optional<T> RankSampleLine::*member) {
  if (std::none_of(ranks.begin(), ranks.end(), [&](const auto& each) { return (each.*member).has_value(); })) return;
  Json values = Json::array();
  for (const auto& rank : ranks) values.push_back(or_null(rank.*member));
  json[key] = std::move(values);
}

std::string path_in(const LaunchPlan& plan) {
  return plan.run_dir + "/launcher.jsonl";
}

// An error costs the line: the run does not depend on it.
std::string append_line(const std::string& path, const std::string& line) {
  remove_symbolic_link(path);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  const int error = file.valid() ? write_all(file.get(), line) : errno;
  return error == 0 ? std::string() : fmt::format("cannot write '{}': {}", path, describe_errno(error));
}

}  // namespace

bool LauncherEvents::records(const LaunchPlan& plan) {
  const bool evaluates = std::find(plan.argv.begin(), plan.argv.end(), "--eval_only") != plan.argv.end();
  return plan.kind == JobKind::kRun && !plan.run_dir.empty() && !evaluates;
}

void LauncherEvents::append(const LaunchPlan& plan, const std::string& line) {
  if (!records(plan) || !files_.has_room()) return;
  files_.submit(line.size(), [path = path_in(plan), line] { return append_line(path, line + "\n"); });
}

void LauncherEvents::launched(const LaunchPlan& plan) {
  if (!records(plan)) return;
  Json hosts = Json::array();
  for (const auto& node : plan.nodes) hosts.push_back({{"host", node.host}, {"ranks", node.ranks.size()}});
  Json json = {{"time", seconds_since_1970()},
               {"event", "launch"},
               {"attempt", plan.restart_count},
               {"job_id", plan.job_id},
               {"world_size", plan.world_size()},
               {"hosts", std::move(hosts)},
               {"environment", {{"directory", plan.cwd}}}};
  files_.submit(0, [path = path_in(plan), directory = plan.cwd, json = std::move(json)]() mutable {
    if (const auto commit = git_commit_of(directory); !commit.empty()) json["environment"]["git_commit"] = commit;
    return append_line(path, dump_json(json) + "\n");
  });
}

void LauncherEvents::ended(const LaunchPlan& plan, const JobReport& report, bool restarts,
                           std::optional<int64_t> last_step, double when) {
  append(plan, dump_json(Json{{"time", when},
                              {"event", "end"},
                              {"attempt", plan.restart_count},
                              {"exit_code", report.outcome.exit_code},
                              {"cause", recorded_cause(plan, report)},
                              {"step", or_null(last_step)},
                              {"restarts", restarts}}));
}

void LauncherEvents::sampled(const LaunchPlan& plan, const std::vector<RankSampleLine>& ranks) {
  Json json = {{"time", seconds_since_1970()}, {"event", "ranks"}};
  add_column(json, "step", ranks, &RankSampleLine::step);
  add_column(json, "step_ms", ranks, &RankSampleLine::step_ms);
  add_column(json, "busy_ms", ranks, &RankSampleLine::busy_ms);
  add_column(json, "waiting", ranks, &RankSampleLine::waiting);
  add_column(json, "gpu_mem_bytes", ranks, &RankSampleLine::gpu_mem_bytes);
  add_column(json, "host_mem_bytes", ranks, &RankSampleLine::host_mem_bytes);
  append(plan, dump_json(json));
}

}  // namespace dslaunch::launch
