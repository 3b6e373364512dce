#include "launch/plan/run_record.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/directory_lock.hpp"
#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/run_checkpoints.hpp"
#include "base/small_file.hpp"
#include "launch/plan/run_dir.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

}  // namespace

void write_run_record(const std::string& run_dir, const RunRecord& record) {
  const fs::path path = fs::path(run_dir) / kRunRecord;
  StartCommand start = record.start;
  start.words = without_values_of_env(start.words);
  const Json json = {{"job_id", record.job_id},
                     {"name", record.name.empty() ? Json(nullptr) : Json(record.name)},
                     {"started", record.started},
                     {"model", fmt::format("{:016x}", record.model)},
                     {"config", fmt::format("{:016x}", record.config)},
                     {"start", start_to_json(start)}};
  std::error_code ignored;
  fs::remove(path, ignored);  // so that the write does not follow a link or go into a pipe
  errno = 0;
  std::ofstream file(path);
  file << dump_json(json, 2) << '\n';
  file.close();
  if (file) return;
  if (errno == EMFILE) throw SystemError("create", path.string(), errno);  // another directory would change nothing
  throw UserError(ExitCode::kCannotCreate, fmt::format("cannot use the run directory {}: cannot write {}; choose "
                                                       "another with --run_dir",
                                                       run_dir, kRunRecord));
}

std::optional<RunRecord> read_run_record(const std::string& run_dir) {
  const SmallFile file = read_plain_file((fs::path(run_dir) / kRunRecord).string());
  if (!file.outcome.ok()) return std::nullopt;
  try {
    const Json json = Json::parse(file.bytes);
    const auto hash = [&](const char* key) { return std::stoull(json.at(key).get<std::string>(), nullptr, 16); };
    const Json name = json.value("name", Json());  // records of older versions have neither name nor start
    return RunRecord{.job_id = json.at("job_id").get<std::string>(),
                     .started = json.at("started").get<int64_t>(),
                     .model = hash("model"),
                     .config = hash("config"),
                     .name = name.is_string() ? name.get<std::string>() : std::string(),
                     .start = start_from_json(json.value("start", Json()))};
  } catch (const std::exception&) {  // of another version, or damaged
    return std::nullopt;
  }
}

std::optional<std::string> find_run_to_resume(const std::string& root, uint64_t model, uint64_t config) {
  std::optional<std::string> newest;
  int64_t started = 0;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string dir = at->path().string();
    const auto record = read_run_record(dir);
    if (!record || record->model != model || record->config != config) continue;
    const bool is_newer = !newest || record->started > started || (record->started == started && dir > *newest);
    // A start from scratch would replace what a run without a checkpoint has recorded.
    const bool can_continue = !holds_run(dir) || newest_run_checkpoint(dir);
    if (!is_newer || !can_continue || DirectoryLock::is_held(dir)) continue;
    newest = dir;
    started = record->started;
  }
  return newest;
}

}  // namespace dslaunch::launch
