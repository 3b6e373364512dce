#include "launch/plan/topology.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/small_file.hpp"
#include "launch/plan/cpu_list.hpp"

namespace dslaunch::launch {
namespace {

// Without the newline; empty if the file does not exist.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> cpus_in(const std::string& path) {
  auto cpus = read_cpu_list(first_line(path));
  return cpus.ok() ? *std::move(cpus) : std::vector<int>();
}

int number_in(const std::string& path, int otherwise) {
  int value = otherwise;
  std::ifstream(path) >> value;
  return value;
}

std::map<int, int> node_by_cpu(const std::string& root) {
  std::map<int, int> nodes;
  std::string dir = root + "/sys/devices/system/node/";
  for (int node : cpus_in(dir + "online")) {
    for (int cpu : cpus_in(dir + "node" + std::to_string(node) + "/cpulist")) nodes[cpu] = node;
  }
  return nodes;
}

// Data that several CPUs share is read once for all of them: a large machine has hundreds of CPUs.
class CpuReader {
 public:
  explicit CpuReader(const std::string& root) : dir_(root + "/sys/devices/system/cpu/cpu") {}

  Cpu read(int number, int node) {
    if (!core_of_.contains(number)) read_core(number);
    if (!cache_of_.contains(number)) note_lowest(cache_of_, last_level_sharers(number), number);
    int core = core_of_[number];
    return {
        .number = number, .core = core, .cache = cache_of_[number], .package = package_of_core_[core], .node = node};
  }

 private:
  std::string dir_of(int cpu) const { return dir_ + std::to_string(cpu); }

  static void note_lowest(std::map<int, int>& lowest_of, std::vector<int> sharers, int cpu) {
    if (sharers.empty()) sharers = {cpu};
    for (int sharer : sharers) lowest_of[sharer] = sharers.front();
  }

  void read_core(int number) {
    note_lowest(core_of_, cpus_in(dir_of(number) + "/topology/thread_siblings_list"), number);
    package_of_core_[core_of_[number]] = std::max(0, number_in(dir_of(number) + "/topology/physical_package_id", 0));
  }

  // Caches are numbered from the nearest; instructions have separate ones.
  std::vector<int> last_level_sharers(int number) const {
    std::vector<int> sharers;
    int highest = -1;
    for (int index = 0;; ++index) {
      std::string cache = dir_of(number) + "/cache/index" + std::to_string(index);
      int level = number_in(cache + "/level", -1);
      if (level < 0) return sharers;
      if (level <= highest || first_line(cache + "/type") == "Instruction") continue;
      highest = level;
      sharers = cpus_in(cache + "/shared_cpu_list");
    }
  }

  std::string dir_;
  std::map<int, int> core_of_, cache_of_, package_of_core_;
};

std::optional<double> cores(double quota, double period) {
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

// "150000 100000", or "max 100000".
std::optional<double> quota_of_v2(const std::string& dir) {
  double quota = 0, period = 0;
  std::istringstream(first_line(dir + "/cpu.max")) >> quota >> period;
  return cores(quota, period);
}

// -1: no limit.
std::optional<double> quota_of_v1(const std::string& dir) {
  return cores(number_in(dir + "/cpu.cfs_quota_us", -1), number_in(dir + "/cpu.cfs_period_us", 0));
}

// A cgroup's limit applies to its descendants. In a container the ancestors, or the name of our own cgroup, may not be
// visible: the visible ones count.
template <class Read>
double smallest_upwards(const std::string& mount, std::string cgroup, Read&& read) {
  double smallest = 0;
  for (;;) {
    auto found = read(mount + cgroup);
    if (found && (smallest == 0 || *found < smallest)) smallest = *found;
    if (cgroup.empty()) return smallest;
    cgroup.resize(std::min(cgroup.rfind('/'), cgroup.size()));
    if (cgroup == "/") cgroup.clear();
  }
}

bool names_cpu(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").find(",cpu,") != std::string::npos;
}

std::vector<int> allowed_cpus() {
  std::vector<int> allowed;
  // The kernel rejects a set smaller than its own.
  for (int capacity = 1024; capacity <= 64 * 1024; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    bool done = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; done && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) allowed.push_back(cpu);
    }
    CPU_FREE(set);
    if (done || errno != EINVAL) break;
  }
  return allowed;
}

// Containers often forbid these calls.
bool may_bind_memory() {
  int mode = 0;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0;
}

size_t num_nodes(const Topology& topology) {
  std::vector<int> nodes;
  for (const auto& cpu : topology.cpus) {
    if (std::find(nodes.begin(), nodes.end(), cpu.node) == nodes.end()) nodes.push_back(cpu.node);
  }
  return nodes.size();
}

// NVML writes an eight-digit domain in upper case, the kernel four digits in lower case: 00000000:3B:00.0,
// 0000:3b:00.0.
std::string kernel_pci_address(std::string address) {
  for (char& c : address) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  size_t colon = address.find(':');
  return colon == 8 && address.starts_with("0000") ? address.substr(4) : address;
}

}  // namespace

double read_cpu_quota(const std::string& root, std::string_view proc_self_cgroup) {
  double smallest = 0;
  auto consider = [&](double quota) {
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  };
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), cgroup = line.substr(second + 1);
    if (cgroup == "/") cgroup.clear();
    if (controllers.empty()) {
      consider(smallest_upwards(root + "/sys/fs/cgroup", cgroup, quota_of_v2));
    } else if (names_cpu(controllers)) {
      consider(smallest_upwards(root + "/sys/fs/cgroup/cpu", cgroup, quota_of_v1));
    }
  }
  return smallest;
}

Topology read_topology(const std::string& root, const std::vector<int>& allowed) {
  Topology topology;
  auto nodes = node_by_cpu(root);
  CpuReader cpus(root);
  for (int number : allowed) {
    auto node = nodes.find(number);
    topology.cpus.push_back(cpus.read(number, node == nodes.end() ? 0 : node->second));
  }
  topology.quota_cores = read_cpu_quota(root, read_whole_file(root + "/proc/self/cgroup").value_or(""));
  return topology;
}

std::vector<GpuPlace> place_gpus(const std::string& root, const std::vector<Gpu>& gpus) {
  std::vector<GpuPlace> places;
  for (const auto& gpu : gpus) {
    int node = -1;
    if (!gpu.pci_bus_id.empty()) {
      node = number_in(root + "/sys/bus/pci/devices/" + kernel_pci_address(gpu.pci_bus_id) + "/numa_node", -1);
    }
    places.push_back({gpu.uuid, node});
  }
  return places;
}

int num_usable_cpus() {
  return std::max<int>(1, static_cast<int>(allowed_cpus().size()));
}

Topology topology_of_this_process(bool with_gpus) {
  Topology topology = read_topology("", allowed_cpus());
  if (num_nodes(topology) < 2) return topology;
  if (may_bind_memory()) topology.memory_nodes = cpus_in("/sys/devices/system/node/has_memory");
  if (with_gpus) topology.gpus = place_gpus("", survey_gpus().gpus);
  return topology;
}

}  // namespace dslaunch::launch
