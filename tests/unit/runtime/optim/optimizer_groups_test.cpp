#include "runtime/optim/optimizer_groups.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace {

using namespace dslaunch;
using namespace dslaunch::runtime;
using Catch::Matchers::Contains;
using config::Optimizer;
using config::OptimizerType;

ParameterTable table_of(const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters) {
  ParameterTable table;
  for (const auto& [name, shape] : parameters) {
    ParameterInfo info;
    info.name = name;
    info.shape = shape;
    table.parameters.push_back(info);
  }
  return table;
}

const ParameterTable kTable = table_of({{"embed.weight", {7, 4}},
                                        {"blocks.0.fc.weight", {6, 5}},
                                        {"blocks.0.fc.bias", {6}},
                                        {"blocks.0.norm.weight", {2, 3}},
                                        {"scale", {}},
                                        {"lm_head.weight", {7, 4}}});

std::vector<std::string> names_of(const optim::OptimizerGroups& plan) {
  std::vector<std::string> out;
  for (const int group : plan.of_parameter) out.push_back(plan.groups[static_cast<size_t>(group)].name);
  return out;
}

std::string error_of(const Optimizer& settings) {
  try {
    optim::plan_optimizer_groups(settings, kTable);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("without patterns all parameters are in the default group", "[runtime][optimizer_groups]") {
  const auto plan = optim::plan_optimizer_groups({.weight_decay = 0.1}, kTable);
  REQUIRE(plan.groups.size() == 1);
  CHECK(plan.default_group == 0);
  CHECK(names_of(plan) == std::vector<std::string>(6, "default"));
}

TEST_CASE("the first group with a fitting pattern takes a parameter", "[runtime][optimizer_groups]") {
  const Optimizer settings{.lr = 0.1,
                           .weight_decay = 0.5,
                           .groups = {{.name = "head", .match = {"lm_head.*"}, .lr = 0.2},
                                      {.name = "weights", .match = {"*.weight", "scale"}, .beta2 = 0.95}},
                           .no_decay = {"*bias", "*.weight"}};
  const auto plan = optim::plan_optimizer_groups(settings, kTable);
  CHECK(names_of(plan) == std::vector<std::string>{"weights", "weights", "no_decay", "weights", "weights", "head"});
  CHECK(plan.groups[0].settings.lr == 0.2);
  CHECK(plan.groups[0].settings.weight_decay == 0.5);
  CHECK(plan.groups[1].settings.beta2 == 0.95);
  CHECK(plan.groups[2].settings.weight_decay == 0.0);
  CHECK(plan.default_group == 3);
}

TEST_CASE("no decay by itself takes biases, norms and everything of less than two dims",
          "[runtime][optimizer_groups]") {
  const auto plan = optim::plan_optimizer_groups({.weight_decay = 0.1, .no_decay = {"auto"}}, kTable);
  CHECK(names_of(plan) ==
        std::vector<std::string>{"default", "default", "no_decay", "no_decay", "no_decay", "default"});
}

TEST_CASE("patterns look at names, aliases or the number of dims", "[runtime][optimizer_groups]") {
  ParameterInfo parameter;
  parameter.name = "decoder.layers.10.weight";
  parameter.shape = {3, 4};
  parameter.aliases = {"tied.weight"};
  for (const char* pattern : {"*", "*.weight", "decoder.*", "*layers.1?.*", "*layers.1[0-3].weight", "tied.*",
                              "ndim>=2", "ndim<3", "ndim==2", "ndim <= 2", "ndim>1"}) {
    INFO(pattern);
    CHECK(optim::matches_pattern(pattern, parameter));
  }
  for (const char* pattern : {"weight", "decoder", "*layers.1.*", "Decoder.*", "ndim<2", "ndim==1", "ndim>2", "ndim"}) {
    INFO(pattern);
    CHECK_FALSE(optim::matches_pattern(pattern, parameter));
  }
}

TEST_CASE("a pattern without a parameter is the user's mistake, with the names nearest to it",
          "[runtime][optimizer_groups]") {
  CHECK_THAT(error_of({.groups = {{.name = "head", .match = {"lm_head.wieght"}, .lr = 0.2}}}),
             Contains("optimizer.param_groups.head.match") && Contains("lm_head.wieght") && Contains("lm_head.weight"));
  CHECK_THAT(error_of({.no_decay = {"nothing.like.it.*"}}), Contains("optimizer.no_decay") && Contains("6 parameters"));
}

TEST_CASE("Muon takes matrices that are neither embedding nor head", "[runtime][optimizer_groups]") {
  const Optimizer settings{.type = OptimizerType::kMuon, .lr = 3e-4, .muon_lr = 0.02};
  const auto plan = optim::plan_optimizer_groups(settings, kTable);
  REQUIRE(plan.groups.size() == 2);
  CHECK(plan.groups[0].is_muon);
  CHECK(plan.groups[0].settings.lr == 0.02);
  CHECK_FALSE(plan.groups[1].is_muon);
  CHECK(plan.groups[1].settings.lr == 3e-4);
  CHECK(plan.of_parameter == std::vector<int>{1, 0, 1, 0, 1, 1});
}

TEST_CASE("a group may say whether Muon steps its matrices", "[runtime][optimizer_groups]") {
  Optimizer settings{.type = OptimizerType::kMuon,
                     .groups = {{.name = "embedding", .match = {"embed.*"}, .use_muon = true},
                                {.name = "norms", .match = {"*norm*"}, .use_muon = false}}};
  const auto plan = optim::plan_optimizer_groups(settings, kTable);
  CHECK(plan.of_parameter == std::vector<int>{0, 4, 5, 3, 5, 5});
  settings.groups[0].match = {"*.bias"};
  CHECK_THAT(error_of(settings), Contains("blocks.0.fc.bias") && Contains("1 dims"));
}
