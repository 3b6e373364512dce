#include "runtime/checkpoint/storage_topology.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/fs_visibility_timeout.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kReportAfter = 5000ms;
constexpr int kNoLeader = -1;

std::string key(const std::string& name) {
  return "checkpoint/share/" + name;
}

// The unique name is the test: no other process can have created this file.
std::string make_probe(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  std::string name = ".seen-by-all-" + to_hex(random_bytes(8));
  std::ofstream file(dir + "/" + name);
  file.close();
  if (!file) throw SystemError("create a file", dir, error ? error.value() : errno, ExitCode::kCannotCreate);
  return name;
}

bool appears(const std::string& dir, const std::string& name, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout), report_at = Deadline::after(kReportAfter);
  bool is_reported = false;
  std::error_code ignored;
  while (!fs::exists(dir + "/" + name, ignored)) {
    if (deadline.passed()) return false;
    if (report_at.passed() && !std::exchange(is_reported, true)) {
      log::info("waiting until a file of another rank is visible in '{}' (up to {} s)", dir, timeout / 1s);
    }
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

// One detection, on one rank.
class TopologyDetection {
 public:
  TopologyDetection(std::string dir, bool per_node, const Placement& placement, rendezvous::Store& store,
                    Deadline deadline, comm::Watchdog* watch)
      : dir_(std::move(dir)),
        per_node_(per_node),
        placement_(placement),
        store_(store),
        deadline_(deadline),
        watch_(watch) {}

  CheckpointStorageTopology run() {
    const bool writes_probe = placement_.rank == 0 || (per_node_ && placement_.leads_node());
    if (writes_probe) write_probe();
    receive_probes();
    send(fmt::format("rank/{}", placement_.rank), std::to_string(lowest_visible_leader()));
    const Json verdict = receive_verdict();
    std::error_code ignored;
    if (!probe_.empty()) fs::remove(dir_ + "/" + probe_, ignored);
    if (verdict.contains("late")) throw TimeoutError(verdict["late"].get<std::string>());
    if (verdict.contains("error")) throw UserError(ExitCode::kCannotCreate, verdict["error"].get<std::string>());
    const auto leader_of_rank = verdict.at("leader_of_rank").get<std::vector<int>>();
    const std::set<int> leaders(leader_of_rank.begin(), leader_of_rank.end());
    return {leader_of_rank.at(static_cast<size_t>(placement_.rank)), {leaders.begin(), leaders.end()}};
  }

 private:
  void send(const std::string& name, const std::string& text) {
    store_.set(key(name), text, with_minimum_time(deadline_));
  }

  void write_probe() {
    Json message{{"rank", placement_.rank}, {"host", placement_.host}};
    try {
      probe_ = make_probe(dir_);
      message["probe"] = probe_;
    } catch (const SystemError& error) {
      message["error"] = error.what();
    }
    send(fmt::format("node/{}", placement_.node), message.dump());
  }

  // While the result lives, this rank has finished its part and waits for the others.
  std::optional<comm::Watchdog::BarrierWait> begin_wait() {
    if (!watch_) return std::nullopt;
    return std::optional<comm::Watchdog::BarrierWait>(std::in_place, *watch_, "folder",
                                                      fmt::format("the check whether all ranks see '{}'", dir_), "",
                                                      deadline_.left());
  }

  void receive_probes() {
    const auto waiting = begin_wait();
    if (placement_.rank == 0) collect_probes();
    probes_ = Json::parse(store_.get(key("probes"), verdict_deadline(deadline_)));
  }

  Json receive_verdict() {
    const auto waiting = begin_wait();
    if (placement_.rank == 0) send("verdict", verdict().dump());
    return Json::parse(store_.get(key("verdict"), verdict_deadline(deadline_)));
  }

  void collect_probes() {
    Json all = Json::array();
    for (int node = 0; node < (per_node_ ? placement_.num_nodes : 1); ++node) {
      all.push_back(
          Json::parse(store_.get(key(fmt::format("node/{}", per_node_ ? node : placement_.node)), deadline_)));
    }
    send("probes", all.dump());
  }

  // The lowest rank whose file is visible here. With own directories, files of other nodes are not waited for: a file
  // that was created before its name was announced is found by the first lookup.
  int lowest_visible_leader() const {
    int leader = kNoLeader;
    for (size_t node = 0; node < probes_.size(); ++node) {
      if (!probes_[node].contains("probe")) continue;
      const bool is_own = !per_node_ || static_cast<int>(node) == placement_.node;
      const int rank = probes_[node].at("rank").get<int>();
      if (leader != kNoLeader && rank > leader) continue;
      if (appears(dir_, probes_[node].at("probe").get<std::string>(), is_own ? fs_visibility_timeout(dir_) : 0ms))
        leader = rank;
    }
    return leader;
  }

  // Computed by rank 0.
  Json verdict() {
    std::vector<int> leader_of_rank, ranks_without_leader;
    for (int rank = 0; rank < placement_.world_size; ++rank) {
      try {
        leader_of_rank.push_back(std::stoi(store_.get(key(fmt::format("rank/{}", rank)), deadline_)));
      } catch (const TimeoutError& error) {
        return {{"late", fmt::format("timed out waiting for rank {} to check {} ({})", rank, dir_, error.what())}};
      }
      if (leader_of_rank.back() == kNoLeader) ranks_without_leader.push_back(rank);
    }
    for (const auto& probe : probes_) {
      if (probe.contains("error")) return {{"error", error_of(probe)}};
    }
    if (!ranks_without_leader.empty())
      return {
          {"error", per_node_ ? describe_invisible_directory(ranks_without_leader) : not_shared(ranks_without_leader)}};
    return {{"leader_of_rank", leader_of_rank}};
  }

  std::string error_of(const Json& probe) const {
    const auto text = probe.at("error").get<std::string>();
    if (!per_node_) return text;
    return fmt::format("rank {} on {}: {}", probe.at("rank").get<int>(), probe.at("host").get<std::string>(), text);
  }

  std::string not_shared(const std::vector<int>& ranks_without_leader) const {
    return fmt::format(
        "rank{} {} cannot see {}, the checkpoint directory of rank 0: put --run_dir (or checkpoint.dir) on a file "
        "system that all hosts share, let every host store its own part (\"checkpoint\": {{\"use_node_local_storage\": "
        "true}}), or switch checkpoints off (checkpoint.at_end and on_interrupt false)",
        ranks_without_leader.size() == 1 ? "" : "s", fmt::join(ranks_without_leader, ", "), dir_);
  }

  std::string describe_invisible_directory(const std::vector<int>& ranks_without_leader) const {
    return fmt::format(
        "rank{} {} cannot see {} of the first rank on the node: with use_node_local_storage all ranks of a node must "
        "see one directory",
        ranks_without_leader.size() == 1 ? "" : "s", fmt::join(ranks_without_leader, ", "), dir_);
  }

  const std::string dir_;
  const bool per_node_;
  const Placement& placement_;
  rendezvous::Store& store_;
  const Deadline deadline_;
  comm::Watchdog* const watch_;
  std::string probe_;
  Json probes_;
};

}  // namespace

CheckpointStorageTopology detect_storage_topology(const std::string& dir, bool per_node, const Placement& placement,
                                                  rendezvous::Store& store, Deadline deadline, comm::Watchdog* watch) {
  return TopologyDetection(dir, per_node, placement, store, deadline, watch).run();
}

}  // namespace dslaunch::runtime
