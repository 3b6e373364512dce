#include "launch/agent/node_status.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/small_file.hpp"
#include "base/split.hpp"
#include "launch/plan/devices.hpp"
#include "ports/process_trees.hpp"

namespace dslaunch::launch {
namespace {

int64_t memory_line(const std::string& text, const std::string& name) {
  const size_t at = text.find(name + ":");
  return at == text.npos ? 0 : std::strtoll(text.c_str() + at + name.size() + 1, nullptr, 10) * 1024;
}

void read_host(NodeStatus& out) {
  double load = 0;
  if (::getloadavg(&load, 1) == 1) out.load_percent = static_cast<int>(std::lround(std::clamp(load, 0.0, 1e6) * 100));
  out.num_cores = static_cast<int>(std::max<long>(0, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const std::string memory = read_whole_file("/proc/meminfo").value_or("");
  out.memory_bytes = memory_line(memory, "MemTotal");
  out.available_bytes = memory_line(memory, "MemAvailable");
}

// Pages that processes share count for each.
int64_t resident_bytes(const std::vector<ports::TreeProcess>& tree) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  int64_t sum = 0;
  for (const auto& process : tree) {
    std::istringstream fields(read_whole_file(fmt::format("/proc/{}/statm", process.pid)).value_or(""));
    int64_t size = 0, resident = 0;
    if (fields >> size >> resident) sum += resident * page;
  }
  return sum;
}

const GpuUse* use_of(const std::string& device, const std::vector<GpuUse>& gpus) {
  if (device.empty()) return nullptr;
  if (const auto index = parse_int<size_t>(device)) return *index < gpus.size() ? &gpus[*index] : nullptr;
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const GpuUse& gpu) { return gpu.uuid.starts_with(device); });
  return found == gpus.end() ? nullptr : &*found;
}

RankSample sample(const WatchedRank& rank, const std::vector<ports::TreeProcess>& tree,
                  const std::vector<GpuUse>& gpus) {
  RankSample out;
  out.rank = rank.rank;
  const auto own = std::find_if(tree.begin(), tree.end(), [&](const auto& each) { return each.pid == rank.pid; });
  if (own != tree.end()) out.process_state = own->stat.state;
  if (!tree.empty()) out.resident_bytes = resident_bytes(tree);
  if (rank.page) {
    if (const auto step = rank.page->step()) {
      out.step = step->step;
      out.total_steps = step->total_steps;
      out.step_us = std::llround(std::clamp(step->step_ms, -1.0, 1e12) * 1000);
      out.busy_us = step->busy_ms < 0 ? -1 : std::llround(std::clamp(step->busy_ms, 0.0, 1e12) * 1000);
      out.device_bytes = step->device_bytes;
    }
    out.hang_report = rank.page->report();
  }
  if (const GpuUse* gpu = use_of(rank.device, gpus)) {
    out.gpu_percent = gpu->percent;
    out.gpu_bytes = gpu->used_bytes;
    out.gpu_total_bytes = gpu->total_bytes;
  }
  return out;
}

}  // namespace

struct NodeStatusReader::Answer {
  NodeStatus status;
  std::atomic<bool> there = false;
};

struct NodeStatusReader::Gpus {
  std::unique_ptr<GpuMeter> meter;  // opened when first wanted
};

std::string device_of_rank(const std::string& visible_devices, int local_rank) {
  std::vector<std::string> all;
  if (!visible_devices.empty()) all = split(visible_devices, ',');
  if (all.size() == 1) return all[0];
  const auto index = static_cast<size_t>(local_rank);
  return index < all.size() ? all[index] : std::string();
}

void NodeStatusReader::request(const StatusWanted& wanted, std::vector<WatchedRank> ranks) {
  if (!thread_) {
    thread_ = std::make_unique<FileThread>();
    gpus_ = std::make_shared<Gpus>();
  }
  answer_ = nullptr;
  if (!thread_->idle()) return;  // the driver does not answer: requests must not pile up
  answer_ = std::make_shared<Answer>();
  answer_->status.request = wanted.request;
  thread_->submit(0, [answer = answer_, gpus = gpus_, with_gpus = wanted.with_gpus, ranks = std::move(ranks)] {
    std::vector<GpuUse> uses;
    const bool has_gpus =
        std::any_of(ranks.begin(), ranks.end(), [](const auto& each) { return !each.device.empty(); });
    if (with_gpus && has_gpus) {
      if (!gpus->meter) gpus->meter = std::make_unique<GpuMeter>();
      uses = gpus->meter->read();
    }
    read_host(answer->status);
    std::vector<pid_t> pids;
    for (const auto& rank : ranks) pids.push_back(rank.pid);
    const auto trees = ports::process_trees(pids);
    for (const auto& rank : ranks) {
      const auto tree = trees.find(rank.pid);
      if (tree != trees.end()) answer->status.ranks.push_back(sample(rank, tree->second, uses));
    }
    answer->there = true;
    return std::string();
  });
  thread_->wake_when_idle();
}

std::optional<NodeStatus> NodeStatusReader::take() {
  if (thread_) thread_->take_errors();  // the descriptor is not readable any more
  if (!answer_ || !answer_->there) return std::nullopt;
  return std::move(std::exchange(answer_, nullptr)->status);
}

}  // namespace dslaunch::launch
