#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ATen/ops/empty.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/format.hpp"
#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/checkpoint_directory.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "runtime/checkpoint/name_match.hpp"
#include "runtime/checkpoint/resume_plan.hpp"
#include "saved_example.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::example_part;
using test::example_values;
using test::expect_error;
using test::TempDir;

namespace fs = std::filesystem;

namespace {

struct Outcome {
  int code = 0;
  std::string message;
};

// All ranks save together, one thread each; `dirs` by rank, the last one for all further ranks.
std::vector<Outcome> save_all(const std::vector<std::string>& dirs, int64_t step, int world_size, int64_t keep_last = 2,
                              std::chrono::milliseconds timeout = std::chrono::seconds(30), int absent_rank = -1) {
  test::MemoryStore store;
  std::vector<Outcome> outcomes(static_cast<size_t>(world_size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank == absent_rank) continue;
    ranks.emplace_back([&, rank] {
      const std::string& dir = dirs[std::min(static_cast<size_t>(rank), dirs.size() - 1)];
      try {
        CheckpointWriter writer({dir, rank, world_size, keep_last, true, timeout}, store);
        writer.save(example_part(step, rank, world_size));
        writer.finish();
        if (writer.last_saved_step() != step) throw std::runtime_error("wrong last_saved_step");
      } catch (const Error& error) {
        outcomes[static_cast<size_t>(rank)] = {to_int(error.code()), error.what()};
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return outcomes;
}

void require_saved(const std::string& dir, int64_t step, int world_size, int64_t keep_last = 2) {
  for (const auto& outcome : save_all({dir}, step, world_size, keep_last)) {
    INFO(outcome.message);
    REQUIRE(outcome.code == 0);
  }
}

void require_holds(const std::string& path, int64_t step) {
  CheckpointReader reader(path);
  REQUIRE(reader.metadata().step == step);
  for (const char* state : {"master", "exp_avg"}) {
    at::Tensor out = at::empty({5, 2});
    reader.read_into("w", state, 0, out);
    REQUIRE(out.view({-1}).equal(example_values(step, 0, 10)));
  }
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

// What is written to standard error while it lives.
class SaidOnStandardError {
 public:
  SaidOnStandardError() : before_(::dup(2)) {
    REQUIRE(::pipe(ends_) == 0);
    ::dup2(ends_[1], 2);
  }
  ~SaidOnStandardError() {
    ::dup2(before_, 2);
    for (const int fd : {before_, ends_[0], ends_[1]}) ::close(fd);
  }
  SaidOnStandardError(const SaidOnStandardError&) = delete;
  SaidOnStandardError& operator=(const SaidOnStandardError&) = delete;

  void wait_for(const std::string& text) {
    while (text_.find(text) == std::string::npos) {
      pollfd entry{ends_[0], POLLIN, 0};
      if (::poll(&entry, 1, 30'000) != 1) throw std::logic_error("nobody said '" + text + "' but " + text_);
      char chunk[4096];
      text_.append(chunk, static_cast<size_t>(std::max<ssize_t>(::read(ends_[0], chunk, sizeof chunk), 0)));
    }
  }
  const std::string& so_far() const { return text_; }

 private:
  const int before_;
  int ends_[2] = {-1, -1};
  std::string text_;
};

}  // namespace

TEST_CASE("what one world saved any other reads, slice by slice", "[runtime][checkpoint]") {
  TempDir dir;
  const int world_size = GENERATE(1, 2, 3, 4);
  require_saved(dir.path(), 50, world_size);
  CheckpointReader reader(dir.path());
  CHECK(reader.path() == dir / "step_00000050");
  CHECK(reader.world_size() == world_size);
  for (int64_t begin = 0; begin < 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      at::Tensor out = at::empty({end - begin});
      reader.read_into("w", "exp_avg", begin, out);
      REQUIRE(out.equal(example_values(50, begin, end)));
    }
  }
  at::Tensor low = at::empty({3}, at::kBFloat16), count = at::empty({}, at::kLong);
  reader.read_into("inner.tied", "master", 0, low);
  CHECK(low.equal(example_values(50, 0, 3).to(at::kBFloat16)));
  reader.read_into("count", "buffer", 0, count);
  CHECK(count.item<int64_t>() == 50);
  CHECK(reader.has("w", "master"));
  CHECK_FALSE(reader.has("w", "momentum"));
}

TEST_CASE("a checkpoint keeps what it was told about the run", "[runtime][checkpoint]") {
  TempDir dir;
  test::MemoryStore store;
  CheckpointPart part = example_part(7, 0, 1);
  part.metadata.scalars["worst"] = std::numeric_limits<double>::infinity();
  test::write_file(dir / "skeleton", "model bytes");
  part.skeleton = dir / "skeleton";
  CheckpointWriter writer({dir / "c", 0, 1, 2, false}, store);
  writer.save(part);
  CHECK(writer.last_saved_step() == 7);

  CheckpointReader reader(dir / "c/step_00000007");
  CHECK(reader.metadata().position == DataPosition{2, 17});
  CHECK(reader.metadata().scalars == part.metadata.scalars);
  CHECK(reader.metadata().config == part.metadata.config);
  REQUIRE(reader.find("inner.tied"));
  CHECK(reader.find("inner.tied")->aliases == Names{"head"});
  CHECK(reader.find("inner.tied")->dtype == at::kBFloat16);
  CHECK(reader.find("count")->is_buffer);
  CHECK_FALSE(reader.find("f")->trainable);
  CHECK(test::read_file(*reader.skeleton()) == "model bytes");
  CHECK(names_in(dir / "c/step_00000007") == Names{"manifest.json", "model.pt", "rank_00000.safetensors"});
  CHECK(test::read_file(dir / "c/latest") == "step_00000007\n");
}

TEST_CASE("random state comes back to the same place along data and pipe", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 1, 2);
  CheckpointReader reader(dir.path());
  CHECK(reader.rng_state(1) == std::string("rng of rank 1\0\xff", 15));
  CHECK_FALSE(reader.rng_state(2));

  using comm::Mesh;
  const auto source = [](std::optional<Mesh> saved, int num_saved, const Mesh& now, int rank) {
    CheckpointMetadata metadata;
    metadata.mesh = saved;
    return rank_with_random_state(metadata, num_saved, now, rank).value_or(-1);
  };
  CHECK(source({}, 2, {.data = 2}, 1) == 1);
  CHECK(source({}, 2, {.data = 3}, 1) == -1);
  CHECK(source({}, 2, {.data = 1, .pipe = 2}, 1) == 1);  // as before there were meshes
  CHECK(source(Mesh{.data = 2}, 2, {.data = 1, .pipe = 2}, 1) == 1);
  CHECK(source(Mesh{2, 1, 2}, 4, {2, 1, 2}, 3) == 3);
  CHECK(source(Mesh{2, 1, 2}, 4, {2, 1, 1}, 1) == 2);
  CHECK(source(Mesh{2, 1, 1}, 2, {2, 1, 3}, 5) == 1);
  CHECK(source(Mesh{2, 1, 2}, 4, {4, 1, 1}, 1) == -1);  // tensor ranks have equal states, data ranks must not
  CHECK(source(Mesh{4, 1, 1}, 4, {2, 1, 2}, 1) == -1);
}

TEST_CASE("a manifest has the mesh of the save", "[runtime][checkpoint]") {
  Manifest manifest;
  manifest.world_size = 12;
  manifest.metadata.mesh = comm::Mesh{3, 2, 2};
  const auto read = manifest_from_json(to_json(manifest), "manifest.json");
  REQUIRE(read.metadata.mesh);
  CHECK(read.metadata.mesh->coordinates(11) == comm::MeshCoordinates{2, 1, 1});
  for (const comm::Mesh& bad :
       {comm::Mesh{3, 2, 1}, comm::Mesh{12, 12, 12}, comm::Mesh{0, 2, 6}, comm::Mesh{13, 1, 1}}) {
    manifest.metadata.mesh = bad;
    expect_error(ExitCode::kBadInput, {"'manifest.json'", "damaged"},
                 [&] { manifest_from_json(to_json(manifest), "manifest.json"); });
  }
}

TEST_CASE("only the newest checkpoints are kept, and later ones of another run", "[runtime][checkpoint]") {
  TempDir dir;
  for (int64_t step : {10, 20, 90, 30}) require_saved(dir.path(), step, 2);
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000020", "step_00000030", "step_00000090"});
  require_holds(dir.path(), 30);
  require_saved(dir.path(), 40, 1, 0);
  CHECK(steps_in(dir.path()) == std::vector<int64_t>{20, 30, 40, 90});
}

TEST_CASE("the same step is saved again and replaces the first", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 3);
  require_saved(dir.path(), 10, 2);
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000010"});
  CHECK(CheckpointReader(dir.path()).world_size() == 2);
  require_holds(dir.path(), 10);
}

TEST_CASE("the best checkpoints are not pruned, and are found by name", "[runtime][checkpoint]") {
  TempDir dir;
  for (const int64_t step : {10, 20}) require_saved(dir.path(), step, 1, 2);
  write_best(dir.path(), "step_00000010 eval_loss 0.5\n");
  for (const int64_t step : {30, 40, 50}) require_saved(dir.path(), step, 1, 2);
  CHECK(names_in(dir.path()) == Names{"best", "latest", "step_00000010", "step_00000040", "step_00000050"});
  CHECK(resolve_checkpoint_path(dir / "best") == dir / "step_00000010");
  require_holds(dir / "best", 10);
  require_holds(dir.path(), 50);  // the directory stands for its newest
  write_best(dir.path(), "step_00000040 eval_loss 0.25\nstep_00000010 eval_loss 0.5\n");
  CHECK(best_steps(dir.path()) == std::vector<int64_t>{40, 10});
  require_holds(dir / "best", 40);
  write_best(dir.path(), "step_00000040 eval_loss 0.25\n");
  require_saved(dir.path(), 60, 1, 1);
  CHECK(names_in(dir.path()) == Names{"best", "latest", "step_00000040", "step_00000060"});
  // What names nothing stands for its directory, as `latest` does.
  test::write_file(dir / "best", "nonsense\n");
  CHECK(best_steps(dir.path()).empty());
  CHECK(resolve_checkpoint_path(dir / "best") == dir.path());
}

TEST_CASE("leftovers of a killed save are removed by the next one", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 1);
  fs::create_directory(dir / "step_00000011.tmp");
  test::write_file(dir / "step_00000011.tmp/rank_00000.safetensors", "half");
  fs::create_directory(dir / "step_00000009.removing");
  fs::create_directory(dir / "mine.tmp");
  require_holds(dir.path(), 10);
  require_saved(dir.path(), 12, 1);
  CHECK(names_in(dir.path()) == Names{"latest", "mine.tmp", "step_00000010", "step_00000012"});
}

TEST_CASE("a rank whose disk is full fails the save on all ranks and changes nothing", "[runtime][checkpoint]") {
  TempDir dir, other;
  require_saved(dir.path(), 10, 3);
  // Rank 1 writes into a folder of its own, where its file is a device that is always full.
  fs::create_directory(other / "step_00000020.tmp");
  fs::create_symlink("/dev/full", other / "step_00000020.tmp/rank_00001.safetensors");
  const auto outcomes = save_all({dir.path(), other.path(), dir.path()}, 20, 3);
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == 74);
    CHECK_THAT(outcome.message, Catch::Matchers::Contains("rank 1") && Catch::Matchers::Contains("No space left") &&
                                    Catch::Matchers::Contains("rank_00001.safetensors"));
  }
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000010"});
  require_holds(dir.path(), 10);
  require_saved(dir.path(), 20, 3);
  require_holds(dir.path(), 20);
}

TEST_CASE("a write that the system stops in the middle leaves the checkpoint before", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 2);
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tiny { 200, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tiny) == 0);
  const auto outcomes = save_all({dir.path()}, 20, 2);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  for (const auto& outcome : outcomes) CHECK(outcome.code == 74);
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000010"});
  require_holds(dir.path(), 10);
}

TEST_CASE("a disk that is full only when the shards are written is told with the rank and what is left",
          "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 2);
  const std::string full = "step_00000020.tmp/manifest.json";  // of a checkpoint that is whole but for it
  test::MemoryStore store;
  std::vector<test::RankOutcome> outcomes(2);
  test::on_all_ranks(2, [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      CheckpointWriter writer({dir.path(), rank, 2}, store);
      auto part = example_part(20, rank, 2);
      if (rank == 0) part.wait_for_copies = [&] { fs::create_symlink("/dev/full", dir / full); };
      writer.save(std::move(part));
      writer.finish();
    });
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == 74);
    CHECK_THAT(outcome.message, Catch::Contains("checkpoint of step 20: rank 0: write '" + dir / full) &&
                                    Catch::Contains("No space left") &&
                                    Catch::Contains("earlier checkpoints are unchanged"));
  }
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000010"});
  require_holds(dir / "step_00000010", 10);
}

TEST_CASE("a checkpoint that is complete is called so when 'latest' cannot point at it", "[runtime][checkpoint]") {
  TempDir dir;
  fs::create_directories(dir / "latest/of somebody");
  for (const auto& outcome : save_all({dir.path()}, 20, 2)) {
    CHECK(outcome.code == 74);
    CHECK_THAT(outcome.message, Catch::Contains("'" + dir / "step_00000020' is complete, but 'latest' does not point"));
  }
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000020"});
  require_holds(dir / "step_00000020", 20);
}

TEST_CASE("a folder that cannot be made ends the save on all ranks", "[runtime][checkpoint]") {
  TempDir dir;
  test::write_file(dir / "file", "");
  for (const auto& outcome : save_all({dir / "file/checkpoints"}, 10, 2)) {
    CHECK(outcome.code == 73);
    CHECK_THAT(outcome.message, Catch::Matchers::Contains("file/checkpoints"));
  }
}

TEST_CASE("a rank that does not come is named to all, and the half save is removed", "[runtime][checkpoint]") {
  TempDir dir;
  const auto outcomes = save_all({dir.path()}, 10, 3, 2, std::chrono::milliseconds(50), 1);
  for (const int rank : {0, 2}) {
    CHECK(outcomes[static_cast<size_t>(rank)].code == 124);
    CHECK_THAT(outcomes[static_cast<size_t>(rank)].message,
               Catch::Contains("step 10: rank 1: timed out waiting for its part"));
  }
  CHECK(names_in(dir.path()).empty());
}

TEST_CASE("a rank that is late with its part hears that it was", "[runtime][checkpoint]") {
  TempDir dir;
  test::MemoryStore store;
  const auto save = [&](int rank, std::function<void()> wait_for_copies) {
    return test::outcome_of([&] {
      CheckpointWriter writer({dir.path(), rank, 2, 2, true, std::chrono::milliseconds(50)}, store);
      auto part = example_part(10, rank, 2);
      part.wait_for_copies = std::move(wait_for_copies);
      writer.save(std::move(part));
      writer.finish();
    });
  };
  test::RankOutcome first;
  std::thread leader([&] { first = save(0, {}); });
  const auto late = save(1, [&] { leader.join(); });
  CHECK(late.code == 124);
  CHECK_THAT(late.message, Catch::Contains("rank 1: timed out waiting for its part"));
  CHECK(first.message == late.message);
  CHECK(names_in(dir.path()).empty());
}

TEST_CASE("a host that is out of reach for a while can still tell its part", "[runtime][checkpoint]") {
  struct SlowStore : test::MemoryStore {
    void set(const std::string& key, const std::string& value, Deadline deadline) override {
      shortest = std::min(shortest, deadline.left());
      MemoryStore::set(key, value, deadline);
    }
    std::chrono::milliseconds shortest = std::chrono::hours(1);
  };
  TempDir dir;
  SlowStore store;
  CheckpointWriter writer({dir.path(), 0, 1}, store);
  writer.save(example_part(10, 0, 1));
  writer.finish();
  CHECK(store.shortest > std::chrono::seconds(20));  // until the launcher gives it up
}

TEST_CASE("a save that stands still is told by the rank that does, and by rank 0", "[runtime][checkpoint]") {
  TempDir dir;
  test::MemoryStore store;
  const std::string own = "waiting for the copies from the device";
  const std::string others = "waiting for the part of rank 1";
  SaidOnStandardError said;
  std::vector<test::RankOutcome> outcomes(2);
  test::on_all_ranks(2, [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      CheckpointWriterOptions options{dir.path(), rank, 2};
      options.warn_after = std::chrono::milliseconds(1);
      CheckpointWriter writer(options, store);
      auto part = example_part(20, rank, 2);
      if (rank == 1) {
        part.wait_for_copies = [&] {
          said.wait_for(own);
          said.wait_for(others);
        };
      }
      writer.save(std::move(part));
      writer.finish();
    });
  });
  for (const auto& outcome : outcomes) CHECK(outcome.message == "");
  CHECK_THAT(said.so_far(), Catch::Contains("by the checkpoint of step 20"));
  require_holds(dir.path(), 20);
}

TEST_CASE("a run that fails does not wait long for a rank that does not come", "[runtime][checkpoint]") {
  TempDir dir;
  test::MemoryStore store;
  CheckpointWriterOptions options{dir.path(), 0, 2};
  options.final_timeout = std::chrono::milliseconds(20);
  { CheckpointWriter(options, store).save(example_part(10, 0, 2)); }
  CHECK(names_in(dir.path()).empty());
}

TEST_CASE("a shard that is not in the folder of the manifest fails the save", "[runtime][checkpoint]") {
  TempDir dir, other;
  require_saved(dir.path(), 10, 2, 1);
  fs::create_directory(other / "step_00000020.tmp");  // takes rank 1's
  for (const auto& outcome : save_all({dir.path(), other.path()}, 20, 2, 1)) {
    CHECK(outcome.code == 74);
    CHECK_THAT(outcome.message, Catch::Contains("rank_00001.safetensors") && Catch::Contains("was missing"));
  }
  CHECK(names_in(dir.path()) == Names{"latest", "step_00000010"});
}

TEST_CASE("the time for a checkpoint follows from its size", "[runtime][checkpoint]") {
  using std::chrono::hours, std::chrono::minutes;
  CHECK(time_for_checkpoint({}) == minutes(30));
  CHECK(time_for_checkpoint({{.name = "b", .shape = {}}, {.name = "w", .shape = {100'000, 10'000}}}) > minutes(40));
  // 840 GB of state, written and read again at 100 MB/s.
  CHECK(time_for_checkpoint({{.name = "w", .shape = {70'000, 1'000'000}}}) > hours(5));
}

TEST_CASE("an error of the background shows at the next save", "[runtime][checkpoint]") {
  TempDir dir;
  test::write_file(dir / "c", "in the way");
  test::MemoryStore store;
  CheckpointWriter writer({dir / "c", 0, 1}, store);
  writer.save(example_part(1, 0, 1));
  expect_error(ExitCode::kCannotCreate, {dir / "c"}, [&] { writer.save(example_part(2, 0, 1)); });
  fs::remove(dir / "c");
  writer.save(example_part(3, 0, 1));
  writer.finish();
  require_holds(dir / "c", 3);
}

TEST_CASE("the newest complete checkpoint is found without latest", "[runtime][checkpoint]") {
  TempDir dir;
  for (int64_t step : {10, 20}) require_saved(dir.path(), step, 1);
  const auto newest = [&] { return CheckpointReader(dir.path()).path(); };
  CHECK(newest() == dir / "step_00000020");
  test::write_file(dir / "latest", "step_00000010\n");
  CHECK(newest() == dir / "step_00000010");
  test::write_file(dir / "latest", "step_00000099\n");
  CHECK(newest() == dir / "step_00000020");
  fs::remove(dir / "latest");
  fs::remove(dir / "step_00000020/manifest.json");
  CHECK(newest() == dir / "step_00000010");
}

TEST_CASE("latest stands for its folder and a manifest for its checkpoint, another file for nothing",
          "[runtime][checkpoint]") {
  TempDir dir;
  for (int64_t step : {10, 20}) require_saved(dir.path(), step, 1);
  CHECK(CheckpointReader(dir / "latest").path() == dir / "step_00000020");
  CHECK(CheckpointReader(dir / "step_00000010/manifest.json").path() == dir / "step_00000010");
  CHECK(resolve_checkpoint_path("latest") == ".");
  CHECK(resolve_checkpoint_path(dir / "step_00000010/") == dir / "step_00000010");
  CHECK(resolve_checkpoint_path("/") == "/");
  fs::rename(dir / "step_00000010", dir / "manifest.json");  // a folder is taken by its name
  CHECK(CheckpointReader(dir / "manifest.json").path() == dir / "manifest.json");
  expect_error(ExitCode::kNoInput, {"rank_00000.safetensors", "got a file"},
               [&] { CheckpointReader(dir / "step_00000020/rank_00000.safetensors"); });
}

TEST_CASE("a run directory stands for its newest checkpoint", "[runtime][checkpoint]") {
  TempDir run;
  for (int64_t step : {10, 20}) require_saved(run / "checkpoints", step, 1);
  CHECK(CheckpointReader(run.path()).path() == run / "checkpoints/step_00000020");
  CHECK(CheckpointReader(run.path() + "/").path() == run / "checkpoints/step_00000020");
  CHECK(resolve_checkpoint_path(run / "checkpoints") == run / "checkpoints");
}

TEST_CASE("what cannot be read is not taken for missing", "[runtime][checkpoint]") {
  TempDir dir;
  fs::create_symlink("loop", dir / "loop");
  expect_error(ExitCode::kIoError, {dir / "loop"}, [&] { survey_checkpoints(dir / "loop"); });
  CHECK(survey_checkpoints(dir / "not/there").empty());
  require_saved(dir.path(), 10, 1);
  fs::remove(dir / "step_00000010/manifest.json");
  fs::create_symlink("manifest.json", dir / "step_00000010/manifest.json");
  const auto found = survey_checkpoints(dir.path());
  REQUIRE(found.size() == 1);
  CHECK(found[0].has_manifest);
  CHECK_THAT(found[0].loadable.error(), Catch::Contains("cannot read") && Catch::Contains("symbolic links"));
}

TEST_CASE("damage is found and named", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 2);
  const std::string folder = dir / "step_00000010", shard = folder + "/rank_00001.safetensors";
  const std::string good = test::read_file(shard), manifest = test::read_file(folder + "/manifest.json");
  auto open = [&] {
    CheckpointReader reader(folder);
    reader.read_into("w", "master", 0, at::empty({10}));
  };
  SECTION("a flipped bit") {
    std::string bad = good;
    bad.back() = static_cast<char>(bad.back() ^ 1);
    test::write_file(shard, bad);
    expect_error(ExitCode::kBadInput, {"damaged", "rank_00001.safetensors", "hash"}, open);
    // Shards that are not needed are not read.
    CheckpointReader reader(folder, *inspect_checkpoint(folder).manifest);
    CHECK_NOTHROW(reader.read_into("w", "master", 0, at::empty({5})));
    CHECK_THROWS_AS(reader.read_into("w", "master", 5, at::empty({5})), DamagedCheckpoint);
  }
  SECTION("a flipped bit, beside the reading") {
    std::string bad = good;
    bad.back() = static_cast<char>(bad.back() ^ 1);
    test::write_file(shard, bad);
    using Share = std::optional<Names>;
    const auto [share, is_found] = GENERATE(table<Share, bool>({
        {std::nullopt, true},                                               // what is read
        {Names{"rank_00000.safetensors", "rank_00001.safetensors"}, true},  // all
        {Names{"rank_00000.safetensors"}, false},                           // another process checks the damaged one
    }));
    CheckpointReader reader(folder, *inspect_checkpoint(folder).manifest);
    reader.check_beside(share);
    CHECK_NOTHROW(reader.read_into("w", "master", 0, at::empty({10})));
    if (is_found) {
      for (int i = 0; i < 2; ++i) {  // it stays so
        expect_error(ExitCode::kBadInput, {"damaged", "rank_00001.safetensors", "hash"},
                     [&] { reader.finish_checks(); });
      }
    } else {
      CHECK_NOTHROW(reader.finish_checks());
    }
    CHECK_THROWS_AS(reader.verified_shard("rank_00001.safetensors"), DamagedCheckpoint);
  }
  SECTION("a truncated shard") {
    test::write_file(shard, good.substr(0, good.size() - 1));
    expect_error(ExitCode::kBadInput, {"damaged", "rank_00001.safetensors", "bytes"}, open);
  }
  SECTION("a missing shard") {
    fs::remove(shard);
    expect_error(ExitCode::kBadInput, {"damaged", "rank_00001.safetensors", "No such file"}, open);
  }
  SECTION("a broken manifest") {
    const size_t half = manifest.size() / 2;
    auto open_with = [&](const std::string& text, const std::vector<std::string>& words) {
      test::write_file(folder + "/manifest.json", text);
      expect_error(ExitCode::kBadInput, {"manifest.json", "is damaged", words.front()}, open);
      CHECK_THROWS_WITH(open(), !Catch::Contains("json.exception"));
    };
    open_with(manifest.substr(0, half), {fmt::format("cut off after {} bytes", half)});
    open_with("{\n;" + manifest.substr(1), {fmt::format("byte 3 of {}", manifest.size() + 2)});
    open_with("[1, 2]", {"it is JSON, but"});
    open_with("", {"it is empty"});
    // As a power cut can leave it. Not passed over as if there had been no checkpoint.
    CHECK(offer_of(survey_checkpoints(dir.path()), std::nullopt, 0, "here").damaged == std::vector<int64_t>{10});
  }
  SECTION("another number in the manifest") {
    std::string other = manifest;
    const size_t at = other.find("\"offset\": 17");
    REQUIRE(at != std::string::npos);
    test::write_file(folder + "/manifest.json", other.replace(at, 12, "\"offset\": 18"));
    expect_error(ExitCode::kBadInput, {"manifest.json", "checksum"}, open);
  }
  SECTION("a number out of its range, in the form that has no checksum") {
    const auto [entry, bad] = GENERATE(table<std::string, std::string>({
        {"\"step\": 10", "\"step\": -9"},
        {"\"step\": 10", "\"step\": 1e300"},
        {"\"step\": 10", "\"step\": 18446744073709551615"},
        {"\"offset\": 17", "\"offset\": -7"},
        {"\"offset\": 17", "\"offset\": 9223372036854775807"},
        {"\"epoch\": ", "\"epoch\": -"},
        {"\"world_size\": 2", "\"world_size\": 0"},
        {"\"world_size\": 2", "\"world_size\": 4294967298"},
        {"\"bytes\": ", "\"bytes\": -"},
        {"\"scalars\": {", "\"scalars\": {\"schedule_offset\": 1e300,"},
        {"\"scalars\": {", "\"scalars\": {\"loss_scale_budget\": -1,"},
        {"\"shape\": [", "\"shape\": [4294967296, 4294967296,"},
        {"\"shape\": [", "\"shape\": [1.5,"},
        {"\"shape\": [", "\"shape\": [true,"},
        {"\"step\": 10", "\"step\": " + std::string(200000, '[') + std::string(200000, ']')},
    }));
    INFO(bad.substr(0, 80));
    std::string other = manifest;
    other.replace(other.find("\"format\": 3"), 11, "\"format\": 1");
    const size_t at = other.find(entry);
    REQUIRE(at != std::string::npos);
    test::write_file(folder + "/manifest.json", other.replace(at, entry.size(), bad));
    expect_error(ExitCode::kBadInput, {"manifest.json", "is damaged"}, open);
  }
  SECTION("a manifest of the future") {
    std::string future = manifest;
    future.replace(future.find("\"format\": 3"), 11, "\"format\": 9");
    test::write_file(folder + "/manifest.json", future);
    expect_error(ExitCode::kBadInput, {"format 9", "newer version", "formats 1 to 3"}, open);
  }
  SECTION("no checkpoint at all") {
    expect_error(ExitCode::kNoInput, {"no checkpoint at", "nowhere"}, [&] { CheckpointReader(dir / "nowhere"); });
    fs::create_directory(dir / "empty");
    expect_error(ExitCode::kNoInput, {"no complete checkpoint"}, [&] { CheckpointReader(dir / "empty"); });
  }
}

TEST_CASE("a checkpoint of another model is refused by the parameter's name", "[runtime][checkpoint]") {
  TempDir dir;
  require_saved(dir.path(), 10, 1);
  CheckpointReader reader(dir.path());
  auto model = test::example_parameters();
  const auto misfit = [&](const std::vector<std::string>& words) {
    const auto match = match_names(model, reader.metadata().parameters);
    CHECK_FALSE(match.fits());
    for (const auto& word : words) CHECK_THAT(describe_misfit(match, reader.path()), Catch::Contains(word));
  };
  CHECK(match_names(model, reader.metadata().parameters).fits());
  SECTION("another shape") {
    model[0].shape = {2, 5};
    misfit({"'w'", "(5, 2)", "(2, 5)"});
  }
  SECTION("other names") {
    model.push_back({.name = "more", .shape = {3}});
    model[0].name = "module.w";
    model[1].name = "inner.tide";
    misfit({"missing in the checkpoint: 'module.w', 'inner.tide', 'more'", "missing in the model: 'w', 'inner.tied'",
            "probably the same", "'module.w'; 'w'", "'inner.tide'; 'inner.tied'"});
  }
  SECTION("a parameter less") {
    model.pop_back();
    misfit({"missing in the model: 'count'"});
  }
  SECTION("a state that was not saved") {
    expect_error(ExitCode::kBadInput, {"has no 'exp_avg_sq' of parameter 'w'", "elements 2 to 4"},
                 [&] { reader.read_into("w", "exp_avg_sq", 2, at::empty({3})); });
  }
}

TEST_CASE("what differs between a checkpoint and a model comes before five names of each list",
          "[runtime][checkpoint]") {
  const auto gpt = [](int64_t num_blocks, int64_t width) {
    std::vector<SavedTensor> out{{.name = "embedding.weight", .shape = {256, width}}};
    for (int64_t block = 0; block < num_blocks; ++block) {
      const std::string prefix = "blocks." + std::to_string(block);
      out.push_back({.name = prefix + ".fc.weight", .shape = {4 * width, width}});
      out.push_back({.name = prefix + ".heads.0.weight", .shape = {width}});
    }
    return out;
  };
  const auto differ = [](const std::vector<SavedTensor>& model, const std::vector<SavedTensor>& saved) {
    return describe_misfit(match_names(model, saved), "c");
  };
  CHECK(differ(gpt(2, 32), gpt(6, 32)) ==
        "the checkpoint 'c' does not fit the model; it has 6 'blocks' and the model 2:\n"
        "  missing in the model: 'blocks.2.fc.weight', 'blocks.2.heads.0.weight', 'blocks.3.fc.weight', "
        "'blocks.3.heads.0.weight', 'blocks.4.fc.weight' and 3 more");
  const std::string wide = differ(gpt(40, 32), gpt(40, 48));
  CHECK_THAT(wide,
             Catch::StartsWith("the checkpoint 'c' does not fit the model; where it has the size 48 the model has "
                               "32 (in 81 tensors):\n"));
  CHECK(wide.size() < 600);
}

TEST_CASE("pieces that overlap are read, a gap is named", "[runtime][checkpoint]") {
  TempDir dir;
  test::MemoryStore store;
  CheckpointPart part = example_part(1, 0, 1);
  part.pieces = {{"w", "master", 0, example_values(1, 0, 4)},
                 {"w", "master", 2, example_values(1, 2, 7)},
                 {"w", "master", 8, example_values(1, 8, 10)}};
  CheckpointWriter writer({dir.path(), 0, 1, 2, false}, store);
  writer.save(part);
  CheckpointReader reader(dir.path());
  at::Tensor out = at::empty({6});
  reader.read_into("w", "master", 1, out);
  CHECK(out.equal(example_values(1, 1, 7)));
  expect_error(ExitCode::kBadInput, {"'master' of parameter 'w'", "for element 7"},
               [&] { reader.read_into("w", "master", 0, at::empty({10})); });
}
