// Whatever happens to a save, at whichever of its steps: what is loaded afterwards is the old state or the new one as a
// whole, and the log names what was passed over.
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <set>

#include "file_call_tracer.hpp"
#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using TempDir = test::MemoryDir;

namespace fs = std::filesystem;

namespace {

// One rank saves the values of step `values` as the checkpoint of step `name`, and as the best one, in this process.
int save_alone(const std::string& dir, const std::string& skeleton, int64_t values, int64_t name, int64_t keep_last) {
  const auto outcome = test::outcome_of([&] {
    test::MemoryStore store;
    CheckpointWriter writer({dir, 0, 1, keep_last}, store);
    auto part = test::example_part(values, 0, 1);
    part.metadata.step = name;
    part.skeleton = skeleton;
    part.best = step_name(name) + " eval_loss 0.5\n";
    writer.save(part);
    writer.finish();
  });
  return outcome.code;
}

// The step whose values are loaded by --resume auto, or `from`; restore_on() has checked that all are of one step.
int64_t loaded_values(const std::string& dir, const std::string& from = "auto") {
  test::MemoryStore store;
  test::ThreadCommunicator world(std::make_shared<test::ThreadGroup>(1), 0);
  at::Tensor master, moment, count;
  const auto restored = restore_checkpoint({dir, from, {}}, store, world, [&](RestoreSource& source) {
    master = at::empty({10}), moment = at::empty({10}), count = at::empty({}, at::kLong);
    source.read_into("w", "master", 0, master);
    source.read_into("w", "exp_avg", 0, moment);
    source.read_into("count", "buffer", 0, count);
    source.rng_state(0, {});
  });
  if (!restored) return -1;
  const int64_t step = count.item<int64_t>();
  test::require_step(master, step, 0);
  test::require_step(moment, step, 0);
  return step;
}

// Standard error of what `work` says.
std::string said_by(const std::function<void()>& work) {
  std::FILE* const file = std::tmpfile();
  const int before = ::dup(2);
  ::dup2(::fileno(file), 2);
  work();
  ::dup2(before, 2);
  ::close(before);
  std::string text(static_cast<size_t>(::lseek(::fileno(file), 0, SEEK_END)), '\0');
  ::lseek(::fileno(file), 0, SEEK_SET);
  if (!text.empty() && ::read(::fileno(file), text.data(), text.size()) < 0) text.clear();
  std::fclose(file);
  return text;
}

bool holds_leftovers(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const auto ending = entry.path().extension();
    if (ending == ".tmp" || ending == ".removing" || ending == ".replaced") return true;
  }
  return false;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) out.push_back(entry.path());
  }
  return out;
}

// The folder with the checkpoint of step 10 that every try starts from.
struct Start {
  explicit Start(const TempDir& dir) : folder(dir / "c"), skeleton(dir / "model_skeleton.pt") {
    test::write_file(skeleton, "model bytes");
    REQUIRE(save_alone(folder, skeleton, 10, 10, 1) == 0);
  }
  const std::string folder, skeleton;
};

}  // namespace

#ifdef DSL_CAN_TRACE_FILE_CALLS

TEST_CASE("a kill before any file call of a save leaves the old or the new state",
          "[runtime][checkpoint][crash_consistency][multiproc]") {
  const int64_t name = GENERATE(20, 10);  // a new step; the same step again, which replaces the first
  bool found_old = false, found_new = false, ended = false;
  for (int call = 0; !ended; ++call) {
    INFO("step " << name << ", kill before call " << call);
    TempDir dir;
    const Start start(dir);
    const auto end = test::run_disturbed([&] { return save_alone(start.folder, start.skeleton, 20, name, 1); },
                                         {test::Disturbance::Kind::kKill, call, 0});
    ended = !end.reached;
    REQUIRE(end.killed == end.reached);
    const int64_t values = loaded_values(start.folder);
    REQUIRE((values == 10 || values == 20));
    REQUIRE((!ended || values == 20));
    const int64_t best = loaded_values(start.folder, start.folder + "/best");
    REQUIRE((best == 10 || best == 20));
    REQUIRE((!ended || best == 20));
    (values == 10 ? found_old : found_new) = true;
    REQUIRE(save_alone(start.folder, start.skeleton, 30, 30, 1) == 0);  // and the next save clears up
    REQUIRE(loaded_values(start.folder) == 30);
    REQUIRE_FALSE(holds_leftovers(start.folder));
    if (ended) REQUIRE(end.calls > 15);
  }
  CHECK(found_old);
  CHECK(found_new);
}

TEST_CASE("a file call that fails ends the save with its code and the old state, or the save is whole",
          "[runtime][checkpoint][crash_consistency][multiproc]") {
  const int error = GENERATE(ENOSPC, EIO);
  const int64_t name = GENERATE(20, 10);
  bool ended = false, kept_replaced = false;
  int failures = 0;
  for (int call = 0; !ended; ++call) {
    INFO("errno " << error << ", step " << name << ", call " << call);
    TempDir dir;
    const Start start(dir);
    const auto end = test::run_disturbed([&] { return save_alone(start.folder, start.skeleton, 20, name, 1); },
                                         {test::Disturbance::Kind::kFail, call, error});
    ended = !end.reached;
    REQUIRE_FALSE(end.killed);
    const int64_t values = loaded_values(start.folder);
    if (end.code == 0) {
      REQUIRE(values == 20);
    } else {
      ++failures;
      REQUIRE((end.code == 74 || (end.code == 73 && error != ENOSPC)));
      REQUIRE((values == 10 || values == 20));
      REQUIRE_FALSE(fs::exists(start.folder + "/latest.tmp"));
      REQUIRE_FALSE(fs::exists(start.folder + "/best.tmp"));
      kept_replaced |= values == 20 && fs::exists(start.folder + "/step_00000010.tmp/manifest.json");
    }
    REQUIRE(save_alone(start.folder, start.skeleton, 30, 30, 1) == 0);
    REQUIRE(loaded_values(start.folder) == 30);
    REQUIRE_FALSE(holds_leftovers(start.folder));
  }
  CHECK(failures > 5);
  CHECK(kept_replaced == (name == 10));  // as long as the renames are not flushed
}

TEST_CASE("a kill or a failure at any file call of a save on two nodes leaves one state of both",
          "[runtime][checkpoint][crash_consistency][multiproc]") {
  const auto kind = GENERATE(test::Disturbance::Kind::kKill, test::Disturbance::Kind::kFail);
  bool ended = false;
  std::set<int64_t> found;
  for (int call = 0; !ended; ++call) {
    INFO((kind == test::Disturbance::Kind::kKill ? "kill" : "EIO") << " at call " << call);
    TempDir dir;
    const test::Hosts hosts{{0, 0, 1}, {dir / "a", dir / "b"}};
    test::save_on(hosts, 10, 1);
    const auto end = test::run_disturbed([&] { return test::save_on(hosts, 20, 1)[0].code; }, {kind, call, EIO});
    ended = !end.reached;
    const auto restored = test::restore_on(hosts);
    for (const auto& rank : restored) {
      REQUIRE(rank.outcome.message == "");
      REQUIRE(rank.step == restored[0].step);
    }
    REQUIRE((restored[0].step == 10 || restored[0].step == 20));
    found.insert(restored[0].step);
    for (const auto& outcome : test::save_on(hosts, 30, 1)) REQUIRE(outcome.message == "");
    REQUIRE(test::restore_on(hosts)[2].step == 30);
    for (const auto& folder : hosts.dir_of_node) REQUIRE_FALSE(holds_leftovers(folder));
  }
  CHECK(found.size() == 2);
}

#endif

TEST_CASE("a flipped bit or a cut in any file gives the old or the new state, and is named",
          "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const Start start(dir);
  REQUIRE(save_alone(start.folder, start.skeleton, 20, 20, 2) == 0);
  auto files = files_of(start.folder + "/step_00000020");
  files.push_back(start.folder + "/latest");
  REQUIRE(files.size() == 4);
  for (const auto& file : files) {
    const std::string good = test::read_file(file);
    bool found_old = false;
    const auto check = [&](const std::string& bad) {
      test::write_file(file, bad);
      int64_t values = 0;
      const std::string said = said_by([&] { values = loaded_values(start.folder); });
      INFO(said);
      REQUIRE((values == 10 || values == 20));
      if (values == 10) REQUIRE_THAT(said, Catch::Contains("step_00000020"));
      found_old |= values == 10;
    };
    for (size_t at = 0; at < good.size(); at += 5) {
      INFO(file << ", byte " << at);
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      check(bad);
    }
    for (const size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      INFO(file << ", cut to " << size);
      check(good.substr(0, size));
    }
    test::write_file(file, good);
    REQUIRE(loaded_values(start.folder) == 20);
    // What a bit can do to the name in `latest` is to make it no name, or that of another step.
    const std::string name = fs::path(file).filename();
    CHECK((found_old || name == "latest"));
  }
}

TEST_CASE("a replacement that a kill has cut between its two renames loses nothing",
          "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const Start start(dir);
  fs::rename(start.folder + "/step_00000010", start.folder + "/step_00000010.replaced");
  fs::create_directory(start.folder + "/step_00000010.tmp");
  CHECK(loaded_values(start.folder) == 10);
  CHECK(CheckpointReader(start.folder).metadata().step == 10);
  for (const char* name : {"/step_00000010", "/step_00000010/", "/step_00000010/manifest.json"}) {
    CAPTURE(name);
    CHECK(CheckpointReader(start.folder + name).metadata().step == 10);
    CHECK(loaded_values(start.folder, start.folder + name) == 10);
  }
  REQUIRE(save_alone(start.folder, start.skeleton, 20, 20, 2) == 0);
  CHECK_FALSE(holds_leftovers(start.folder));
  fs::remove_all(start.folder + "/step_00000020");
  CHECK(loaded_values(start.folder) == 10);
  // One whose successor is in place goes.
  fs::copy(start.folder + "/step_00000010", start.folder + "/step_00000010.replaced");
  REQUIRE(save_alone(start.folder, start.skeleton, 30, 30, 2) == 0);
  CHECK_FALSE(holds_leftovers(start.folder));
}

TEST_CASE("a replacement that has lost its manifest gives way to what it replaced",
          "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const Start start(dir);
  const std::string incomplete = start.folder + "/step_00000010", whole = incomplete + ".replaced";
  fs::copy(incomplete, whole);
  fs::remove(incomplete + "/manifest.json");
  for (const auto& from : {std::string("auto"), incomplete, start.folder})
    CHECK(loaded_values(start.folder, from) == 10);
  CHECK(CheckpointReader(incomplete).path() == whole);
  REQUIRE(save_alone(start.folder, start.skeleton, 20, 20, 2) == 0);
  CHECK_FALSE(holds_leftovers(start.folder));
  CHECK(CheckpointReader(incomplete).path() == incomplete);
  CHECK(steps_in(start.folder) == std::vector<int64_t>{10, 20});
  // Where neither has one, nothing takes the other's place.
  fs::rename(incomplete + "/manifest.json", dir / "aside");
  fs::copy(incomplete, whole);
  CHECK_FALSE(replaced_step(whole));
}

TEST_CASE("a replacement that has lost files gives way to what it replaced",
          "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const Start start(dir);
  REQUIRE(save_alone(start.folder, start.skeleton, 20, 20, 2) == 0);
  const std::string incomplete = start.folder + "/step_00000020", whole = incomplete + ".replaced";
  const std::string shard = incomplete + "/rank_00000.safetensors", good = test::read_file(shard);
  const bool is_cut = GENERATE(true, false);
  fs::copy(incomplete, whole);
  fs::remove(shard);
  if (is_cut) test::write_file(shard, good.substr(0, good.size() / 2));
  int64_t values = 0;
  const std::string said = said_by([&] { values = loaded_values(start.folder); });
  CHECK(values == 20);
  CHECK_THAT(said, Catch::Contains("skipping checkpoint '" + incomplete + "': rank_00000.safetensors"));
  CHECK(CheckpointReader(start.folder).path() == whole);
  CHECK_THROWS_AS(CheckpointReader(incomplete), UserError);  // who names it is told
  SECTION("the next save puts it into its place") {
    REQUIRE(save_alone(start.folder, start.skeleton, 30, 30, 2) == 0);
    CHECK_FALSE(holds_leftovers(start.folder));
    CHECK(CheckpointReader(incomplete).metadata().step == 20);
  }
  SECTION("a torn one stands in for nothing") {
    fs::remove(whole + "/rank_00000.safetensors");
    CHECK(loaded_values(start.folder) == 10);
  }
}

TEST_CASE("a file that is missing sends back to the checkpoint before", "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const Start start(dir);
  REQUIRE(save_alone(start.folder, start.skeleton, 20, 20, 2) == 0);
  for (const auto& file : files_of(start.folder + "/step_00000020")) {
    fs::rename(file, dir / "aside");
    int64_t values = 0;
    const std::string said = said_by([&] { values = loaded_values(start.folder); });
    CHECK(values == 10);
    CHECK_THAT(said, Catch::Contains("step_00000020") && Catch::Contains(fs::path(file).filename()));
    fs::rename(dir / "aside", file);
  }
}

TEST_CASE("damage of all checkpoints is an error, not a new start", "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const auto hosts = test::one_host(dir / "c", 2);
  CHECK_FALSE(test::restore_on(hosts)[0].found);
  for (int64_t step : {10, 20}) test::save_on(hosts, step);
  for (const auto& file : files_of(dir / "c")) {
    std::string bytes = test::read_file(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    if (fs::path(file).extension() == ".safetensors") test::write_file(file, bytes);
  }
  for (const auto& rank : test::restore_on(hosts)) {
    CHECK(rank.outcome.code == 65);
    CHECK_THAT(rank.outcome.message, Catch::Contains("no checkpoint in") && Catch::Contains("step_00000010"));
  }
  for (const auto& rank : test::restore_on(hosts, "/step_00000020")) {
    CHECK(rank.outcome.code == 65);
    CHECK_THAT(rank.outcome.message,
               Catch::Contains("hash") && Catch::EndsWith("use --resume auto to take the newest intact checkpoint"));
  }
}

TEST_CASE("a named folder gives its newest checkpoint or an error", "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const auto hosts = test::one_host(dir / "c", 2);
  for (int64_t step : {10, 20}) test::save_on(hosts, step);
  CHECK(test::restore_on(hosts, "/.")[1].step == 20);
  CHECK(test::restore_on(hosts, "/step_00000010")[1].step == 10);
  CHECK(test::restore_on(hosts, "/nowhere")[1].outcome.code == 66);
  fs::resize_file(dir / "c/step_00000020/rank_00001.safetensors", 100);
  const auto refused = test::restore_on(hosts, "/.")[0].outcome;
  CHECK(refused.code == 65);
  CHECK_THAT(refused.message, Catch::Contains("rank_00001.safetensors has 100 bytes") && Catch::Contains("auto"));
  CHECK(test::restore_on(hosts)[0].step == 10);
}

TEST_CASE("an unusable checkpoint is named once, in an error or in a warning",
          "[runtime][checkpoint][crash_consistency]") {
  TempDir dir;
  const std::string folder = dir / "c", older = folder + "/step_00000010", newer = folder + "/step_00000020";
  const auto answer_to = [&](const std::function<void()>& work) {
    test::RankOutcome outcome;
    const std::string said = said_by([&] { outcome = test::outcome_of(work); });
    CAPTURE(said, outcome.message);
    CHECK(said.empty());
    CHECK(outcome.code != 0);
    return outcome.message;
  };
  const auto once = [](const std::string& text, const std::string& part) {
    const size_t at = text.find(part);
    return at != text.npos && text.find(part, at + 1) == text.npos;
  };
  REQUIRE(save_alone(folder, "", 10, 10, 2) == 0);
  const bool is_cut = GENERATE(true, false);
  const auto damage = [is_cut](const std::string& checkpoint) {
    const std::string shard = checkpoint + "/" + shard_name(0);
    std::string bytes = test::read_file(shard);
    if (is_cut) bytes.resize(100);
    if (!is_cut) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_file(shard, bytes);
  };

  SECTION("the only one is damaged") {
    damage(older);
    for (const auto& from : {older, folder, std::string("auto")}) {
      const auto text = answer_to([&] { loaded_values(folder, from); });
      CHECK(text.find('\n') == text.npos);
      CHECK((once(text, older) && once(text, is_cut ? "has 100 bytes" : "has the hash")));
    }
    const auto read = answer_to([&] { CheckpointReader reader(folder); });
    CHECK((once(read, older) && read.ends_with("; use another checkpoint")));
  }
  SECTION("the newest is damaged") {
    REQUIRE(save_alone(folder, "", 20, 20, 2) == 0);
    damage(newer);
    const std::string said = said_by([&] { CHECK(loaded_values(folder) == 10); });
    CHECK_THAT(said, !Catch::Contains("another checkpoint"));
    CHECK((once(said, "warning: ") && once(said, newer)));
  }
  SECTION("no save was finished") {
    REQUIRE(save_alone(folder, "", 20, 20, 2) == 0);
    for (const auto& each : {older, newer}) fs::remove(each + "/" + kManifestName);
    const auto text = answer_to([&] { loaded_values(folder, folder); });
    CHECK((once(text, older) && once(text, newer)));
  }
}
