#include "config/run_flags.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "config/key_table.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;

namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

RunFlags flags_of(const Given& given) {
  RunFlags flags;
  for (const auto& [name, value] : given) flags.set(name, value);
  return flags;
}

}  // namespace

TEST_CASE("every flag that sets a key names a supported key", "[config][run_flags]") {
  std::set<std::string_view> names, keys;
  for (const auto& flag : run_flags()) {
    INFO(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK(flag.name.starts_with("--"));
    CHECK_FALSE(flag.help.empty());
    CHECK(flag.value_name.empty() == (flag.value == FlagValue::kSwitch));
    if (flag.key.empty()) continue;
    CHECK(keys.insert(flag.key).second);
    const KeySpec* row = find_key(flag.key);
    REQUIRE(row);
    CHECK(row->status == Status::kSupported);
    CHECK((flag.value == FlagValue::kNumber) == (row->kind == Kind::kInt));
    if (flag.second_key.empty()) continue;
    CHECK(keys.insert(flag.second_key).second);
    CHECK(find_key(flag.second_key)->status == Status::kSupported);
  }
  for (const auto& flag : run_flags()) {
    if (!flag.instead_of.empty()) CHECK(names.contains(flag.instead_of));
  }
}

TEST_CASE("a number's minimum is that of the flag's key", "[config][run_flags]") {
  for (const auto& flag : run_flags()) {
    if (flag.name == "--steps") CHECK(minimum_of(flag) == 1);
    if (flag.name == "--seed") CHECK(minimum_of(flag) == 0);
    if (flag.name == "--verify") CHECK(minimum_of(flag) == 1);
  }
}

TEST_CASE("flags become words in the order of the table, and only those given", "[config][run_flags]") {
  CHECK(words_of({}).empty());
  const auto flags = flags_of({{"--eval_only", ""}, {"--seed", "7"}, {"--data", "a.npz"}});
  CHECK(words_of(flags) == std::vector<std::string>{"--data", "a.npz", "--seed", "7", "--eval_only"});
  CHECK(flags.number("--seed") == 7);
  CHECK_FALSE(flags.number("--trace"));
  CHECK(flags.text("--resume").empty());
  CHECK_THROWS(flags.has("--sead"));
}

TEST_CASE("flags override the file, and --set overrides flags", "[config][run_flags]") {
  const std::string text = "{train: {seed: 1, steps: 5}, loss: \"mse\"}";
  const auto flags = flags_of({{"--seed", "2"}, {"--loss", "cross_entropy"}});
  const auto result = load(text, 1, overrides_of(flags, {"train.seed=3"}));
  CHECK(result.config.train.seed == 3);
  CHECK(result.config.train.steps == 5);
  CHECK(result.config.loss == "cross_entropy");
  CHECK(result.settings.at("loss").origin == "--loss");
}

TEST_CASE("--steps or --epochs alone says how long the run is, both say whichever comes first", "[config][run_flags]") {
  const auto loaded = [](const Given& given) {
    return load("{train: {steps: 5, epochs: 2}}", 1, overrides_of(flags_of(given), {}));
  };
  CHECK(loaded({}).config.train.steps == 5);
  CHECK(loaded({}).config.train.epochs == 2);
  const auto steps = loaded({{"--steps", "50"}}).config.train;
  CHECK(steps.steps == 50);
  CHECK_FALSE(steps.epochs);
  const auto epochs = loaded({{"--epochs", "7"}});
  CHECK_FALSE(epochs.config.train.steps);
  CHECK(epochs.config.train.epochs == 7);
  CHECK(epochs.settings.at("train.steps").origin == "--epochs");
  const auto both = loaded({{"--epochs", "7"}, {"--steps", "50"}}).config.train;
  CHECK(both.steps == 50);
  CHECK(both.epochs == 7);
}

TEST_CASE("--nvme_path sets both directories, and one line says where nothing is in files", "[config][run_flags]") {
  const auto overrides = overrides_of(flags_of({{"--nvme_path", "/scratch"}}), {});
  const auto published = load_text(
      "{zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\", nvme_path: \"/local_nvme\"}, "
      "offload_param: {device: \"nvme\", nvme_path: \"/local_nvme\"}}}",
      "ds.json", Format::kHjson, overrides);
  REQUIRE(published.ok());
  CHECK(published.config.zero.offload_optimizer.nvme_path == std::vector<std::string>{"/scratch"});
  CHECK(published.config.zero.offload_param.nvme_path == std::vector<std::string>{"/scratch"});
  const auto resident = load_text("{zero_optimization: {stage: 3}}", "ds.json", Format::kHjson, overrides);
  REQUIRE(resident.ok());
  CHECK(has_note(resident, "'--nvme_path' has no effect: nothing is kept in files"));
  CHECK(num_notes(resident, "no effect") == 1);
  const auto one = load_text("{zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\"}}}", "ds.json",
                             Format::kHjson, overrides);
  REQUIRE(one.ok());
  CHECK(num_notes(one, "no effect") == 0);
}
