#include "runtime/checkpoint/storage_topology.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "runtime/checkpoint/fs_visibility_timeout.hpp"
#include "support/memory_store.hpp"
#include "support/message_log.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;

namespace {

struct Answer {
  int leader = -1;
  std::vector<int> leaders;
  std::string error;
};

// `folders` and `nodes` by rank; the first rank of a node leads it.
std::vector<Answer> ask(const std::vector<std::string>& folders, const std::vector<int>& nodes, bool own_folders,
                        std::chrono::milliseconds timeout = std::chrono::minutes(1), size_t absent_rank = SIZE_MAX) {
  test::MemoryStore store;
  std::vector<Answer> told(folders.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < folders.size(); ++rank) {
    if (rank == absent_rank) continue;
    ranks.emplace_back([&, rank] {
      runtime::Placement placement;
      placement.rank = static_cast<int>(rank);
      placement.world_size = static_cast<int>(folders.size());
      placement.local_rank = rank > 0 && nodes[rank] == nodes[rank - 1] ? 1 : 0;
      placement.node = nodes[rank];
      placement.num_nodes = nodes.back() + 1;
      placement.host = "node" + std::to_string(nodes[rank]);
      try {
        const auto share = runtime::detect_storage_topology(folders[rank], own_folders, placement, store,
                                                            Deadline::after(timeout), nullptr);
        told[rank] = {share.leader, share.leaders, ""};
      } catch (const TimeoutError& error) {
        told[rank].error = error.what();
      } catch (const Error& error) {
        told[rank].error = error.code() == ExitCode::kCannotCreate ? error.what() : "another code";
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return told;
}

std::vector<int> leaders_of(const std::vector<Answer>& told) {
  std::vector<int> out;
  for (const auto& answer : told) {
    INFO(answer.error);
    CHECK(answer.error.empty());
    CHECK(answer.leaders == told.front().leaders);
    out.push_back(answer.leader);
  }
  return out;
}

using Ranks = std::vector<int>;

}  // namespace

TEST_CASE("a folder that all ranks see is made and left empty", "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  std::string dir = folder / "new";
  const bool own_folders = GENERATE(false, true);
  CHECK(leaders_of(ask({dir, dir, dir}, {0, 1, 2}, own_folders)) == Ranks{0, 0, 0});
  CHECK(std::filesystem::is_empty(dir));
}

TEST_CASE("a rank that sees another folder is named to all", "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  std::string dir = folder / "a";
  for (const auto& answer : ask({dir, dir, folder / "b"}, {0, 0, 1}, false)) {
    CHECK_THAT(answer.error, Catch::Contains("rank 2 cannot see") && Catch::Contains(dir) &&
                                 Catch::Contains("use_node_local_storage"));
  }
  CHECK(std::filesystem::is_empty(dir));
}

TEST_CASE("a rank that does not come is named to all", "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  const std::string dir = folder / "a";
  const auto told = ask({dir, dir, dir}, {0, 0, 1}, false, std::chrono::milliseconds(50), 1);
  for (const size_t rank : {0, 2})
    CHECK_THAT(told[rank].error, Catch::Contains("timed out waiting for rank 1 to check"));
}

TEST_CASE("what a file system of other hosts may still hide is waited for", "[runtime][checkpoint][storage_topology]") {
  using std::chrono::seconds;
  // A name that was looked for in vain is missing in NFS's eyes for acdirmax, 60 s.
  CHECK(runtime::fs_visibility_timeout("/proc/not/there") > seconds(60));
  CHECK(runtime::fs_visibility_timeout("/dev/shm/not/there") <= seconds(10));
}

TEST_CASE("nodes with folders of their own have a leader each, and those that see one folder share it",
          "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  const std::string a = folder / "a", b = folder / "b";
  const auto told = ask({a, a, b, b, a}, {0, 0, 1, 1, 2}, true);
  CHECK(leaders_of(told) == Ranks{0, 0, 2, 2, 0});
  CHECK(told[0].leaders == Ranks{0, 2});
  CHECK(std::filesystem::is_empty(a));
  CHECK(std::filesystem::is_empty(b));
}

TEST_CASE("a rank that does not see its node's folder is named to all", "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  for (const auto& answer : ask({folder / "a", folder / "b", folder / "c"}, {0, 1, 1}, true)) {
    CHECK_THAT(answer.error, Catch::Contains("rank 2 cannot see") && Catch::Contains("ranks of a node"));
  }
}

TEST_CASE("a folder that cannot be made is told to all", "[runtime][checkpoint][storage_topology]") {
  for (const auto& answer : ask({"/proc/nowhere/checkpoints", "/tmp"}, {0, 1}, false))
    CHECK_THAT(answer.error, Catch::Contains("/proc/nowhere"));
  test::TempDir folder;
  for (const auto& answer : ask({folder / "a", "/proc/nowhere/checkpoints"}, {0, 1}, true))
    CHECK_THAT(answer.error, Catch::Contains("/proc/nowhere") && Catch::Contains("rank 1 on node1"));
}

TEST_CASE("a rank for which the others wait with their look at the folder is told of",
          "[runtime][checkpoint][storage_topology]") {
  test::TempDir folder;
  test::MemoryStore store;
  test::MessageLog warnings;
  comm::Watchdog::Options options{.rank = 0, .world_size = 2, .host = "node0"};
  options.times = comm::HangTimes(std::chrono::seconds(1));
  options.warn = [&](const std::string& text) { warnings.add(text); };
  comm::Watchdog watch(options, store);
  const auto look_of = [&](int rank, comm::Watchdog* watch) {
    const runtime::Placement placement{
        .rank = rank, .world_size = 2, .local_rank = 0, .node = rank, .num_nodes = 2, .host = "node"};
    return runtime::detect_storage_topology(folder.path(), true, placement, store,
                                            Deadline::after(std::chrono::minutes(1)), watch);
  };
  std::string told;
  std::thread late([&] {
    told = warnings.wait_for("has been waiting");
    look_of(1, nullptr);
  });
  CHECK(look_of(0, &watch).leader == 0);
  late.join();
  CHECK_THAT(told,
             Catch::StartsWith("the check whether all ranks see") && Catch::Contains("for rank 1: it has not arrived"));
}
