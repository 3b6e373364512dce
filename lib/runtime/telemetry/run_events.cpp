#include "runtime/telemetry/run_events.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/small_file.hpp"
#include "base/unshare_file.hpp"
#include "base/wall_clock.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Entries = std::vector<std::pair<std::string, std::string>>;

// The rest of the first line that begins with `name`, without ':' and blanks in front.
std::string value_in(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const size_t begin = line.find_first_not_of(": \t", name.size());
    return begin == line.npos ? "" : line.substr(begin);
  }
  return {};
}

// "8 x NVIDIA H100 80GB HBM3"
std::string gpus() {
  std::map<std::string, int> counts;
  std::error_code error;
  for (fs::directory_iterator at("/proc/driver/nvidia/gpus", error), end; !error && at != end; at.increment(error)) {
    const auto text = read_whole_file((at->path() / "information").string()).value_or("");
    if (const auto model = value_in(text, "Model"); !model.empty()) ++counts[model];
  }
  std::vector<std::string> texts;
  for (const auto& [model, count] : counts) texts.push_back(fmt::format("{} x {}", count, model));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

Entries describe_machine() {
  Entries out;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) out.emplace_back(name, value);
  };
  utsname system{};
  if (::uname(&system) == 0) add("kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  const std::string release = read_whole_file("/etc/os-release").value_or("");
  if (auto name = value_in(release, "PRETTY_NAME="); name.size() > 2) add("system", name.substr(1, name.size() - 2));
  add("processor", value_in(read_whole_file("/proc/cpuinfo").value_or(""), "model name"));
  add("cores", fmt::format("{}", ::sysconf(_SC_NPROCESSORS_ONLN)));
  if (const auto memory = read_system_memory(); memory.total > 0) {
    add("host_memory", fmt::format("{:.1f} GiB", static_cast<double>(memory.total) / (1 << 30)));
  }
  add("gpus", gpus());
  add("nvidia_driver", value_in(read_whole_file("/proc/driver/nvidia/version").value_or(""), "NVRM version"));
  return out;
}

RunEvents::RunEvents(const std::string& path) : path_(path) {
  try {
    remove_symbolic_link(path);
    file_.emplace(path);
  } catch (const SystemError& error) {
    log::warning("starts and checkpoints of this run are not recorded: {}", error.what());
  }
}

void RunEvents::start(const RunStart& start) {
  Json environment = Json::object();
  for (const auto& [key, value] : start.environment) environment[key] = value;
  write(dump_json(Json{{"time", seconds_since_1970()},
                       {"event", "start"},
                       {"step", start.step},
                       {"total_steps", start.total_steps},
                       {"environment", std::move(environment)}}));
}

void RunEvents::checkpoint(int64_t step, double time) {
  write(dump_json(Json{{"time", time}, {"event", "checkpoint"}, {"step", step}}));
}

void RunEvents::end(int64_t step, bool stopped) {
  write(dump_json(Json{{"time", seconds_since_1970()},
                       {"event", "end"},
                       {"step", step},
                       {"outcome", stopped ? "stopped" : "finished"}}));
}

void RunEvents::write(const std::string& line) {
  if (!file_) return;
  try {
    file_->write(line + "\n");
  } catch (const SystemError& error) {
    log::warning("starts and checkpoints of this run are not recorded any more: {}", error.what());
    file_.reset();
  }
}

}  // namespace dslaunch::runtime
