#include "spawn/oom_watch.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/small_file.hpp"
#include "base/split.hpp"

namespace dslaunch::spawn {
namespace {

std::string read_text(const std::string& path) {
  return read_whole_file(path).value_or("");
}

struct CgroupMount {
  std::string root, point;  // the mounted part of the hierarchy, and its mount point
};

bool holds_word(std::string_view list, std::string_view word) {
  const auto words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "31 23 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
std::optional<CgroupMount> find_mount(const std::string& mountinfo, bool version_2) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string skipped, type, source, options;
    CgroupMount mount;
    fields >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    while (fields >> skipped && skipped != "-") {
    }
    fields >> type >> source >> options;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && holds_word(options, "memory")) return mount;
  }
  return std::nullopt;
}

// The directory of a cgroup with this path in the hierarchy, if that part is mounted.
std::optional<std::string> dir_of(const CgroupMount& mount, std::string path) {
  if (path.find("/..") != std::string::npos) return std::nullopt;  // outside this container
  if (mount.root != "/") {
    if (path != mount.root && !path.starts_with(mount.root + "/")) return std::nullopt;
    path.erase(0, mount.root.size());
  }
  return path == "/" ? mount.point : mount.point + path;
}

}  // namespace

std::optional<int64_t> parse_oom_kills(const std::string& text) {
  std::istringstream lines(text);
  std::string name;
  int64_t value = 0;
  while (lines >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

std::string oom_events_path(const std::string& proc_cgroup, const std::string& mountinfo) {
  std::string version_2;
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) version_2 = path;
    if (!holds_word(controllers, "memory")) continue;
    auto mount = find_mount(mountinfo, false);
    auto dir = mount ? dir_of(*mount, path) : std::nullopt;
    return dir ? *dir + "/memory.oom_control" : std::string();
  }
  auto mount = version_2.empty() ? std::nullopt : find_mount(mountinfo, true);
  auto dir = mount ? dir_of(*mount, version_2) : std::nullopt;
  return dir ? *dir + "/memory.events" : std::string();
}

OomWatch::OomWatch() : own_cgroup_(read_text("/proc/self/cgroup")) {
  std::string path = oom_events_path(own_cgroup_, read_text("/proc/self/mountinfo"));
  if (auto count = parse_oom_kills(read_text(path))) seen_[path] = *count;
  seen_on_machine_ = parse_oom_kills(read_text("/proc/vmstat"));
}

// A cgroup not seen before is taken to start at 0: older kills would not have raised the machine's count since.
bool OomWatch::rose(const std::string& events_path) {
  auto count = parse_oom_kills(read_text(events_path));
  if (!count || *count <= seen_[events_path]) return false;
  ++seen_[events_path];
  return true;
}

bool OomWatch::machine_rose() {
  auto count = parse_oom_kills(read_text("/proc/vmstat"));
  if (!count || !seen_on_machine_ || *count <= *seen_on_machine_) return false;
  ++*seen_on_machine_;
  return true;
}

std::string OomWatch::explain(const std::string& proc_cgroup) {
  const bool machine = machine_rose();
  const std::string mounts = read_text("/proc/self/mountinfo");
  // Version 1 drops the cgroup of an ended process: our own cgroup, in which it was started, is then the best guess.
  for (const auto& cgroup : {proc_cgroup, own_cgroup_}) {
    std::string path = oom_events_path(cgroup, mounts);
    bool counted = seen_.contains(path) || machine || !seen_on_machine_;
    if (!path.empty() && counted && rose(path)) {
      return "the kernel killed it because its memory cgroup (the limit of the container or job) was full";
    }
  }
  return machine ? "the kernel has just killed a process of this machine because memory ran out, probably this one"
                 : "";
}

}  // namespace dslaunch::spawn
