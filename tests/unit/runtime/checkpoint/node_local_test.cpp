// Checkpoints whose parts lie on several hosts: saved in step, found by asking all, read over the communicator.
#include <catch2/catch.hpp>
#include <filesystem>
#include <latch>

#include "comm/watchdog.hpp"
#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "support/expect_error.hpp"
#include "support/message_log.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::Hosts;
using test::TempDir;

namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

Names names_in(const std::string& dir) {
  Names names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void require_saved(const Hosts& hosts, int64_t step, int64_t keep_last = 9) {
  for (const auto& outcome : test::save_on(hosts, step, keep_last)) {
    INFO(outcome.message);
    REQUIRE(outcome.code == 0);
  }
}

void require_restored(const Hosts& hosts, int64_t step, const std::string& from = "auto") {
  for (const auto& rank : test::restore_on(hosts, from)) {
    INFO(rank.outcome.message);
    REQUIRE(rank.outcome.code == 0);
    REQUIRE(rank.found);
    REQUIRE(rank.step == step);
  }
}

void require_refused(const Hosts& hosts, const std::string& from, const Names& words) {
  for (const auto& rank : test::restore_on(hosts, from)) {
    INFO(rank.outcome.message);
    CHECK(rank.outcome.code == 65);
    for (const auto& word : words) CHECK_THAT(rank.outcome.message, Catch::Contains(word));
  }
}

}  // namespace

TEST_CASE("every node keeps its ranks' part, and says whose the others are", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 0, 1}, {a.path(), b.path()}};
  require_saved(hosts, 10);
  CHECK(names_in(a / "step_00000010") == Names{"manifest.json", "rank_00000.safetensors", "rank_00001.safetensors"});
  CHECK(names_in(b / "step_00000010") == Names{"manifest.json", "rank_00002.safetensors"});
  CHECK(test::read_file(a / "step_00000010/manifest.json") == test::read_file(b / "step_00000010/manifest.json"));
  CHECK(test::read_file(b / "latest") == "step_00000010\n");
  const auto restored = test::restore_on(hosts);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& own = restored[static_cast<size_t>(rank)];
    INFO(own.outcome.message);
    CHECK(own.step == 10);
    CHECK(own.rng == "rng of rank " + std::to_string(rank) + std::string("\0\xff", 2));
  }
  // Rank 2 needs "tied" and "count", which rank 0 saved: they came from there in a second reading.
  CHECK(restored[2].attempts == 2);
}

TEST_CASE("many saves leave no more in the store than one", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 0, 1}, {a.path(), b.path()}};
  auto keys_after = [&](int64_t num_saves) {
    test::MemoryStore store;
    std::vector<test::RankOutcome> outcomes(3);
    test::on_all_ranks(3, [&](int rank) {
      CheckpointWriter writer(test::writer_options(hosts, rank, 2), store);
      outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
        for (int64_t step = 1; step <= num_saves; ++step) writer.save(test::example_part(step, rank, 3));
        writer.finish();
      });
    });
    for (const auto& outcome : outcomes) CHECK(outcome.message.empty());
    return store.num_keys();
  };
  CHECK(keys_after(1) > 0);
  CHECK(keys_after(12) == keys_after(1));
}

TEST_CASE("a rank that does not come is named to the ranks of all nodes", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 0, 1, 1}, {a.path(), b.path()}};
  test::MemoryStore store;
  std::vector<test::RankOutcome> outcomes(3);
  test::on_all_ranks(3, [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      auto options = test::writer_options(hosts, rank, 2);
      options.timeout = std::chrono::milliseconds(50);
      CheckpointWriter writer(options, store);
      writer.save(test::example_part(10, rank, 4));
      writer.finish();
    });
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == 124);
    CHECK_THAT(outcome.message, Catch::Contains("rank 3: timed out waiting for its part"));
  }
  CHECK(names_in(a.path()).empty());
  CHECK(names_in(b.path()).empty());
}

TEST_CASE("a rank that is late with its reading is named to all", "[runtime][checkpoint][node_local]") {
  TempDir dir;
  const Hosts hosts = test::one_host(dir.path(), 3);
  require_saved(hosts, 10);
  test::MemoryStore store;
  auto group = std::make_shared<test::ThreadGroup>(3);
  std::vector<test::RankOutcome> outcomes(3);
  test::on_all_ranks(2, [&](int rank) {  // the third does not come
    test::ThreadCommunicator world(group, rank);
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      RestoreOptions options{dir.path(), "auto", hosts.placement(rank)};
      options.timeout = std::chrono::milliseconds(50);
      restore_checkpoint(options, store, world, [](RestoreSource&) {});
    });
  });
  for (const int rank : {0, 1}) {
    CHECK(outcomes[static_cast<size_t>(rank)].code == 124);
    CHECK_THAT(outcomes[static_cast<size_t>(rank)].message, Catch::Contains("timed out waiting for rank 2"));
  }
}

TEST_CASE("a rank for which the others wait with a resume is told of", "[runtime][checkpoint][node_local]") {
  TempDir dir;
  const Hosts hosts = test::one_host(dir.path(), 2);
  require_saved(hosts, 10);
  test::MemoryStore store;
  test::MessageLog warnings;
  comm::Watchdog::Options watched{.rank = 0, .world_size = 2, .host = "node0"};
  watched.times = comm::HangTimes(std::chrono::seconds(1));
  watched.warn = [&](const std::string& text) { warnings.add(text); };
  comm::Watchdog watch(watched, store);
  auto group = std::make_shared<test::ThreadGroup>(2);
  std::string told;
  std::vector<test::RankOutcome> outcomes(2);
  test::on_all_ranks(2, [&](int rank) {
    if (rank == 1) told = warnings.wait_for("has been waiting");
    test::ThreadCommunicator world(group, rank);
    RestoreOptions options{dir.path(), "auto", hosts.placement(rank)};
    if (rank == 0) options.watchdog = &watch;
    outcomes[static_cast<size_t>(rank)] =
        test::outcome_of([&] { restore_checkpoint(options, store, world, [](RestoreSource&) {}); });
  });
  for (const auto& outcome : outcomes) CHECK(outcome.message.empty());
  CHECK_THAT(told, Catch::StartsWith("the resume (phase 'open') has been waiting") &&
                       Catch::Contains("for rank 1: it has not arrived") &&
                       Catch::EndsWith("The job ends when the wait reaches 30 min"));
}

TEST_CASE("ranks meet in front of the first collective after reading, as long as the resume waits",
          "[runtime][checkpoint][node_local]") {
  TempDir dir;
  const Hosts hosts = test::one_host(dir.path(), 3);
  require_saved(hosts, 10);
  test::MemoryStore store;
  auto group = std::make_shared<test::ThreadGroup>(3);
  std::latch others_have_ended(2);
  std::vector<test::RankOutcome> outcomes(3);
  test::on_all_ranks(3, [&](int rank) {
    test::ThreadCommunicator world(group, rank);
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      RestoreOptions options{dir.path(), "auto", hosts.placement(rank)};
      options.timeout = std::chrono::seconds(1);
      restore_checkpoint(options, store, world, [&](RestoreSource& source) {
        if (rank == 2) others_have_ended.wait();  // it still reads
        source.barrier();
      });
    });
    if (rank != 2) others_have_ended.count_down();
  });
  for (const int rank : {0, 1}) {
    CHECK(outcomes[static_cast<size_t>(rank)].code == 124);
    CHECK_THAT(outcomes[static_cast<size_t>(rank)].message, Catch::Contains("timed out waiting for rank 2"));
  }
}

TEST_CASE("another world on the same hosts gets its pieces from where they lie", "[runtime][checkpoint][node_local]") {
  TempDir a, b, c;
  require_saved({{0, 0, 1, 2}, {a.path(), b.path(), c.path()}}, 10);
  require_restored({{0, 1, 2}, {a.path(), b.path(), c.path()}}, 10);
  require_restored({{0, 0, 1, 1, 1, 2}, {c.path(), b.path(), a.path()}}, 10);
  // Ranks that changed places get their random state too.
  const auto swapped = test::restore_on({{0, 0, 1, 2}, {c.path(), b.path(), a.path()}});
  CHECK(swapped[3].rng.substr(0, 13) == "rng of rank 3");
}

TEST_CASE("the newest step that is complete on all nodes is taken", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 1}, {a.path(), b.path()}};
  require_saved(hosts, 10);
  require_saved(hosts, 20);
  fs::remove_all(b / "step_00000020");  // as if node 2 had been killed before it renamed its folder
  test::write_file(b / "latest", "step_00000010\n");
  require_restored(hosts, 10);
  require_saved(hosts, 30);
  require_restored(hosts, 30);
}

TEST_CASE("old steps go only when a newer one is complete everywhere", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 1}, {a.path(), b.path()}};
  require_saved(hosts, 10, 1);
  fs::rename(b.path(), b.path() + ".away");
  test::write_file(b.path(), "a file stands where node 2 keeps its checkpoints");
  for (const auto& outcome : test::save_on(hosts, 20, 1)) {
    CHECK(outcome.code == 73);
    CHECK_THAT(outcome.message, Catch::Contains("rank 1") && Catch::Contains("Not a directory"));
  }
  CHECK(steps_in(a.path()) == Steps{10});
  CHECK(names_in(a.path()) == Names{"latest", "step_00000010"});
  fs::remove(b.path());
  fs::rename(b.path() + ".away", b.path());
  require_saved(hosts, 30, 1);
  CHECK(steps_in(a.path()) == Steps{30});
  CHECK(steps_in(b.path()) == Steps{30});
}

TEST_CASE("a node that is new gets everything from the others", "[runtime][checkpoint][node_local]") {
  TempDir a, b, fresh;
  require_saved({{0, 1}, {a.path(), b.path()}}, 10);
  require_restored({{0, 1, 2}, {b.path(), fresh.path(), a.path()}}, 10);
  require_restored({{0, 1, 2}, {fresh / "not/made", a.path(), b.path()}}, 10);
}

TEST_CASE("shards of a host that is not in the job are named", "[runtime][checkpoint][node_local]") {
  TempDir a, b, c;
  require_saved({{0, 1, 2}, {a.path(), b.path(), c.path()}}, 10);
  const Hosts two{{0, 1}, {a.path(), b.path()}};
  require_refused(two, "auto", {"step_00000010", "rank_00002.safetensors", "of node3", "on no host of this job"});
  require_refused(two, "", {"rank_00002.safetensors", "of node3"});
}

TEST_CASE("a damaged shard on one host sends all ranks back", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  const Hosts hosts{{0, 1}, {a.path(), b.path()}};
  require_saved(hosts, 10);
  require_saved(hosts, 20);
  const std::string shard = b / "step_00000020/rank_00001.safetensors";
  std::string bytes = test::read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  test::write_file(shard, bytes);
  require_restored(hosts, 10);
  require_restored({{0, 1}, {b.path(), a.path()}}, 10);  // whoever sends it finds out
  require_restored({{0, 0, 1}, {a.path(), b.path()}}, 10);
  require_refused(hosts, "/step_00000020", {"rank_00001.safetensors", "hash"});
}

TEST_CASE("folders copied into one are a whole checkpoint", "[runtime][checkpoint][node_local]") {
  TempDir a, b;
  require_saved({{0, 1}, {a.path(), b.path()}}, 10);
  test::expect_error(ExitCode::kBadInput, {"use_node_local_storage", "rank_00001.safetensors of node2", "Copy"},
                     [&] { CheckpointReader reader(a.path()); });
  fs::copy(b.path(), a.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  CheckpointReader reader(a.path());
  at::Tensor out = at::empty({10});
  reader.read_into("w", "exp_avg", 0, out);
  CHECK(out.equal(test::example_values(10, 0, 10)));
  require_restored(test::one_host(a.path(), 3), 10);
}

TEST_CASE("nodes that see one folder write one checkpoint", "[runtime][checkpoint][node_local]") {
  TempDir shared, own;
  require_saved({{0, 1, 2}, {shared.path(), shared.path(), own.path()}}, 10);
  CHECK(names_in(shared / "step_00000010") ==
        Names{"manifest.json", "rank_00000.safetensors", "rank_00001.safetensors"});
  require_restored({{0, 1, 2}, {shared.path(), own.path(), shared.path()}}, 10);
}
