#include "config/parameter_groups.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "config/dims_condition.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("parameter groups come in the order of the file", "[config][parameter_groups]") {
  const auto optimizer =
      load(
          "{optimizer: {type: \"AdamW\", params: {weight_decay: 0.1}, no_decay: \"auto\", param_groups: {"
          "zebra: {match: [\"*.bias\", \"ndim<2\"], weight_decay: 0}, "
          "ape: {match: \"head.*\", lr: 0.5, betas: [0.8, 0.9], eps: 1e-6}}}}")
          .config.optimizer;
  REQUIRE(optimizer.groups.size() == 2);
  CHECK(optimizer.groups[0].name == "zebra");
  CHECK(optimizer.groups[0].match == std::vector<std::string>{"*.bias", "ndim<2"});
  CHECK(optimizer.groups[0].weight_decay == 0.0);
  CHECK_FALSE(optimizer.groups[0].lr.has_value());
  CHECK(optimizer.groups[1].match == std::vector<std::string>{"head.*"});
  CHECK(optimizer.groups[1].lr == 0.5);
  CHECK(optimizer.groups[1].beta1 == 0.8);
  CHECK(optimizer.groups[1].beta2 == 0.9);
  CHECK(optimizer.groups[1].eps == 1e-6);
  CHECK(optimizer.no_decay == std::vector<std::string>{"auto"});
  CHECK(load("{optimizer: {params: {weight_decay: 1}, no_decay: [\"*.bias\"]}}").config.optimizer.no_decay ==
        std::vector<std::string>{"*.bias"});
}

TEST_CASE("a group that cannot be is refused", "[config][parameter_groups]") {
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {lr: 1}}}}"), Contains("needs 'match'"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {default: {match: \"a\"}}}}"), Contains("choose another name"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {match: [\"\"]}}}}"), Contains("an empty pattern"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {match: \"ndim<<2\"}}}}"),
             Contains("'ndim<<2' is not a condition") && Contains("ndim<2"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {match: \"x\", betas: [0.5]}}}}"),
             Contains("must be two numbers, not 1"));
  CHECK_THAT(only_line("{optimizer: {type: \"SGD\", param_groups: {a: {match: \"x\", eps: 0.5}}}}"),
             Contains("'optimizer.param_groups.a.eps' is not a parameter of SGD"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {match: \"x\", use_muon: true}}}}"),
             Contains("applies to the optimizer Muon"));
  CHECK_THAT(only_line("{optimizer: {param_groups: {a: {match: \"x\", weigth_decay: 0}}}}"),
             Contains("did you mean 'weight_decay'"));
  CHECK_THAT(only_line("{optimizer: {params: {weight_decay: 1}, no_decay: [\"ndim=2\"]}}"),
             Contains("is not a condition"));
}

TEST_CASE("lists of a schedule have one value for each group", "[config][parameter_groups]") {
  const auto with = [](const std::string& optimizer, const std::string& list) {
    return load("{optimizer: {" + optimizer + "}, scheduler: {type: \"WarmupLR\", params: {warmup_max_lr: " + list +
                "}}}");
  };
  const std::string groups = "param_groups: {a: {match: \"x\"}, b: {match: \"y\"}}";
  const auto three = with(groups, "[0.1, 0.2, 0.3]");
  REQUIRE(three.ok());
  CHECK(three.config.scheduler.warmup_max_lr->of(0) == 0.1);
  CHECK(three.config.scheduler.warmup_max_lr->of(2) == 0.3);
  CHECK(with(groups, "0.1").config.scheduler.warmup_max_lr->of(2) == 0.1);
  CHECK(with(groups + ", params: {weight_decay: 1}, no_decay: \"auto\"", "[1, 2, 3, 4]").ok());
  CHECK(with("type: \"Muon\"", "[1, 2]").ok());
  REQUIRE(with(groups, "[0.1, 0.2]").issues.size() == 1);
  CHECK_THAT(lines_of(with(groups, "[0.1, 0.2]")).front(), Contains("has 2 values, but the optimizer has 3"));
  CHECK_THAT(lines_of(with(groups, "[0.1, \"x\", 3]")).front(), Contains("item 2 must be a number"));
  CHECK_THAT(lines_of(with(groups, "[[0.1], 2, 3]")).front(), Contains("item 1 must be a number"));
}

TEST_CASE("a group's rate that the schedule overwrites is worth a line", "[config][parameter_groups]") {
  const std::string groups = "{optimizer: {param_groups: {a: {match: \"x\", lr: 0.5}}}, scheduler: ";
  const auto own = load(groups + "{type: \"WarmupLR\"}}");
  REQUIRE(own.ok());
  CHECK_FALSE(own.config.scheduler.warmup_max_lr.has_value());  // each group's own
  CHECK_FALSE(has_note(own, "has no effect"));
  CHECK(has_note(load(groups + "{type: \"WarmupLR\", params: {warmup_max_lr: 0.1}}}"), "WarmupLR sets the rates"));
  CHECK(has_note(load(groups + "{type: \"LRRangeTest\"}}"), "LRRangeTest sets the rates"));
  CHECK(has_note(load("{optimizer: {no_decay: \"auto\"}}"), "'optimizer.no_decay' has no effect"));
}

TEST_CASE("conditions on dims", "[config][parameter_groups]") {
  REQUIRE(dims_condition("ndim < 2").has_value());
  CHECK(dims_condition("ndim<2")->holds(1));
  CHECK_FALSE(dims_condition("ndim<2")->holds(2));
  CHECK(dims_condition("ndim<=2")->holds(2));
  CHECK(dims_condition("ndim==2")->holds(2));
  CHECK_FALSE(dims_condition("ndim==2")->holds(3));
  CHECK(dims_condition("ndim>=2")->holds(2));
  CHECK(dims_condition("ndim>2")->holds(3));
  for (const char* text : {"ndim", "ndim<", "ndim<x", "ndim=2", "ndims<2", "ndim<2x", "", "*.bias"}) {
    CHECK_FALSE(dims_condition(text).has_value());
  }
}
