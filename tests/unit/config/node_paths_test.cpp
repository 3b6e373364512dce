#include "config/node_paths.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "load_support.hpp"

using namespace dslaunch::config;

namespace {

const std::map<std::string, std::string> kVariables{
    {"HOME", "/home/ann"}, {"SCRATCH", "/scratch"}, {"JOB_1", "77"}, {"EMPTY", ""}, {"NESTED", "$SCRATCH"}};

std::optional<std::string> variable(const std::string& name) {
  const auto found = kVariables.find(name);
  return found == kVariables.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

TEST_CASE("~ and variables of a path are expanded, other text stays", "[config][node_paths]") {
  struct Case {
    const char *path, *expanded;
  };
  auto c = GENERATE(values<Case>({
      {"/local_nvme", "/local_nvme"},
      {"", ""},
      {"~", "/home/ann"},
      {"~/swap", "/home/ann/swap"},
      {"~ann/swap", "~ann/swap"},
      {"/a~/~", "/a~/~"},
      {"$SCRATCH", "/scratch"},
      {"$SCRATCH/$JOB_1", "/scratch/77"},
      {"${SCRATCH}x/${JOB_1}", "/scratchx/77"},
      {"/a/$JOB_1-b", "/a/77-b"},
      {"$NESTED", "$SCRATCH"},
      {"/cost$", "/cost$"},
      {"/5$5", "/5$5"},
      {"$$SCRATCH", "$/scratch"},
      {"${SCRATCH", "${SCRATCH"},
      {"${}", "${}"},
      {"${A-b}", "${A-b}"},
  }));
  INFO(c.path);
  auto expanded = expand_path(c.path, variable);
  REQUIRE(expanded.ok());
  CHECK(*expanded == c.expanded);
}

TEST_CASE("a variable that is not set, or is empty, is named", "[config][node_paths]") {
  struct Case {
    const char *path, *name;
  };
  auto c = GENERATE(values<Case>({{"/a/$NOWHERE/b", "NOWHERE"}, {"${EMPTY}/b", "EMPTY"}, {"$SCRATCHx", "SCRATCHx"}}));
  auto failed = expand_path(c.path, variable);
  INFO(c.path);
  REQUIRE_FALSE(failed.ok());
  CHECK_THAT(failed.error(), Catch::Matchers::StartsWith("the variable " + std::string(c.name) + " is not set"));
  CHECK_FALSE(expand_path("~/x", [](const std::string&) { return std::nullopt; }).ok());
}

TEST_CASE("the paths of sections that are kept in files are expanded, others are not looked at",
          "[config][node_paths]") {
  JobConfig config = good(
      "{zero_optimization: {stage: 3, offload_optimizer: {device: \"nvme\", nvme_path: [\"~/a\", \"$SCRATCH/b\"]},\n"
      " offload_param: {device: \"cpu\", nvme_path: \"$NOWHERE\"}}}");
  expand_node_paths(config, variable);
  CHECK(config.zero.offload_optimizer.nvme_path == std::vector<std::string>{"/home/ann/a", "/scratch/b"});
  CHECK(config.zero.offload_param.nvme_path == std::vector<std::string>{"$NOWHERE"});
  config.zero.offload_param.device = OffloadDevice::kFile;
  CHECK_THROWS_WITH(expand_node_paths(config, variable),
                    "'zero_optimization.offload_param.nvme_path' \"$NOWHERE\": the variable NOWHERE is not set on this "
                    "node; set it, or write the path in full");
}

TEST_CASE("the directory of the first weights is expanded", "[config][node_paths]") {
  JobConfig config = good("{init: {from: \"$SCRATCH/llama\"}}");
  expand_node_paths(config, variable);
  CHECK(config.init->from == "/scratch/llama");
  config.init->from = "$NOWHERE";
  CHECK_THROWS_WITH(expand_node_paths(config, variable),
                    Catch::Matchers::StartsWith("'init.from' \"$NOWHERE\": the variable NOWHERE is not set"));
}

TEST_CASE("variables are those of this process unless said otherwise", "[config][node_paths]") {
  CHECK(variable_of_this_process("PATH"));
  CHECK_FALSE(variable_of_this_process("DSLAUNCH_NO_SUCH_VARIABLE"));
}
