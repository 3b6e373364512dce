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

constexpr auto kTimeToTell = 5000ms;
constexpr int kBlind = -1;

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

bool appears(const std::string& dir, const std::string& name, std::chrono::milliseconds patience_time) {
  const Deadline patience = Deadline::after(patience_time), silence = Deadline::after(kTimeToTell);
  bool told = false;
  std::error_code ignored;
  while (!fs::exists(dir + "/" + name, ignored)) {
    if (patience.passed()) return false;
    if (silence.passed() && !std::exchange(told, true)) {
      log::info("waiting for '{}' to show a file that another rank has put there (up to {} s in all)", dir,
                patience_time / 1s);
    }
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

// One detection, on one rank.
class Question {
 public:
  Question(std::string dir, bool own_folders, const Placement& placement, rendezvous::Store& store, Deadline deadline,
           comm::Watchdog* watch)
      : dir_(std::move(dir)),
        own_folders_(own_folders),
        placement_(placement),
        store_(store),
        deadline_(deadline),
        watch_(watch) {}

  CheckpointStorageTopology ask() {
    const bool asks = placement_.rank == 0 || (own_folders_ && placement_.leads_node());
    if (asks) put_probe();
    hear_probes();
    tell(fmt::format("rank/{}", placement_.rank), std::to_string(leader_in_sight()));
    const Json verdict = hear_verdict();
    std::error_code ignored;
    if (!probe_.empty()) fs::remove(dir_ + "/" + probe_, ignored);
    if (verdict.contains("late")) throw TimeoutError(verdict["late"].get<std::string>());
    if (verdict.contains("error")) throw UserError(ExitCode::kCannotCreate, verdict["error"].get<std::string>());
    const auto leader_of_rank = verdict.at("leader_of_rank").get<std::vector<int>>();
    const std::set<int> leaders(leader_of_rank.begin(), leader_of_rank.end());
    return {leader_of_rank.at(static_cast<size_t>(placement_.rank)), {leaders.begin(), leaders.end()}};
  }

 private:
  void tell(const std::string& name, const std::string& text) { store_.set(key(name), text, with_a_moment(deadline_)); }

  void put_probe() {
    Json told{{"rank", placement_.rank}, {"host", placement_.host}};
    try {
      probe_ = make_probe(dir_);
      told["probe"] = probe_;
    } catch (const SystemError& error) {
      told["error"] = error.what();
    }
    tell(fmt::format("node/{}", placement_.node), told.dump());
  }

  // While the result lives, this rank has finished its part and waits for the others.
  std::optional<comm::Watchdog::BarrierWait> wait_for_others() {
    if (!watch_) return std::nullopt;
    return std::optional<comm::Watchdog::BarrierWait>(std::in_place, *watch_, "folder",
                                                      fmt::format("the look whether all ranks see '{}'", dir_), "",
                                                      deadline_.left());
  }

  void hear_probes() {
    const auto waiting = wait_for_others();
    if (placement_.rank == 0) collect_probes();
    probes_ = Json::parse(store_.get(key("probes"), to_hear_verdict(deadline_)));
  }

  Json hear_verdict() {
    const auto waiting = wait_for_others();
    if (placement_.rank == 0) tell("verdict", verdict().dump());
    return Json::parse(store_.get(key("verdict"), to_hear_verdict(deadline_)));
  }

  void collect_probes() {
    Json all = Json::array();
    for (int node = 0; node < (own_folders_ ? placement_.num_nodes : 1); ++node) {
      all.push_back(
          Json::parse(store_.get(key(fmt::format("node/{}", own_folders_ ? node : placement_.node)), deadline_)));
    }
    tell("probes", all.dump());
  }

  // The lowest rank whose file is visible here. With own directories, files of other nodes are not waited for: a file
  // that was created before its name was announced is found by the first lookup.
  int leader_in_sight() const {
    int leader = kBlind;
    for (size_t node = 0; node < probes_.size(); ++node) {
      if (!probes_[node].contains("probe")) continue;
      const bool is_own = !own_folders_ || static_cast<int>(node) == placement_.node;
      const int rank = probes_[node].at("rank").get<int>();
      if (leader != kBlind && rank > leader) continue;
      if (appears(dir_, probes_[node].at("probe").get<std::string>(), is_own ? fs_visibility_timeout(dir_) : 0ms))
        leader = rank;
    }
    return leader;
  }

  // Computed by rank 0.
  Json verdict() {
    std::vector<int> leader_of_rank, blind;
    for (int rank = 0; rank < placement_.world_size; ++rank) {
      try {
        leader_of_rank.push_back(std::stoi(store_.get(key(fmt::format("rank/{}", rank)), deadline_)));
      } catch (const TimeoutError& error) {
        return {{"late", fmt::format("rank {} has not told whether it sees {} ({})", rank, dir_, error.what())}};
      }
      if (leader_of_rank.back() == kBlind) blind.push_back(rank);
    }
    for (const auto& probe : probes_) {
      if (probe.contains("error")) return {{"error", error_of(probe)}};
    }
    if (!blind.empty()) return {{"error", own_folders_ ? no_folder_in_sight(blind) : not_shared(blind)}};
    return {{"leader_of_rank", leader_of_rank}};
  }

  std::string error_of(const Json& probe) const {
    const auto text = probe.at("error").get<std::string>();
    if (!own_folders_) return text;
    return fmt::format("rank {} on {}: {}", probe.at("rank").get<int>(), probe.at("host").get<std::string>(), text);
  }

  std::string not_shared(const std::vector<int>& blind) const {
    return fmt::format(
        "rank{} {} cannot see {}, where rank 0 keeps the checkpoints: put --run_dir (or checkpoint.dir) on a "
        "file system that all hosts share, let every host keep its own part (\"checkpoint\": "
        "{{\"use_node_local_storage\": true}}), or switch checkpoints off (checkpoint.at_end and on_interrupt false)",
        blind.size() == 1 ? "" : "s", fmt::join(blind, ", "), dir_);
  }

  std::string no_folder_in_sight(const std::vector<int>& blind) const {
    return fmt::format(
        "rank{} {} cannot see {} of their node's first rank: with use_node_local_storage the ranks of a node have to "
        "share that folder",
        blind.size() == 1 ? "" : "s", fmt::join(blind, ", "), dir_);
  }

  const std::string dir_;
  const bool own_folders_;
  const Placement& placement_;
  rendezvous::Store& store_;
  const Deadline deadline_;
  comm::Watchdog* const watch_;
  std::string probe_;
  Json probes_;
};

}  // namespace

CheckpointStorageTopology detect_storage_topology(const std::string& dir, bool own_folders, const Placement& placement,
                                                  rendezvous::Store& store, Deadline deadline, comm::Watchdog* watch) {
  return Question(dir, own_folders, placement, store, deadline, watch).ask();
}

}  // namespace dslaunch::runtime
