#include "command_line/command_line.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using command_line::CommandLine;

namespace {

struct Values {
  std::string model, name;
  std::optional<int64_t> steps;
  std::optional<double> share;
  std::vector<std::string> sets;
  bool dry_run = false;
  int num_calls = 0;
};

Values parsed(const std::vector<std::string>& words) {
  Values values;
  CommandLine line("program train", "usage: program train MODEL", "  program train a.pt\n", "program 1.0");
  line.app().add_option("MODEL", values.model, "what to train")->required();
  line.value("--run_name", values.name, "a name", "NAME");
  line.value_from(1, "-n,--steps", values.steps, "how many", "N");
  line.value_from(0.5, "--share", values.share, "how much", "X");
  line.value("--set", values.sets, "repeatable", "KEY=VALUE")->allow_extra_args(false);
  line.flag("--dry_run", values.dry_run, "start nothing");
  line.flag_function(
      "--call", [&] { ++values.num_calls; }, "call a function");
  const bool is_to_run = line.parse(words);
  CHECK(is_to_run);
  return values;
}

void expect_refusal(const std::vector<std::string>& words, const std::string& text) {
  CAPTURE(words);
  test::expect_error(ExitCode::kUsage, {text, "; see 'program train --help'"}, [&] { parsed(words); });
}

}  // namespace

TEST_CASE("options take their value with a space or an equals sign", "[command_line]") {
  const auto values = parsed({"--steps", "3", "m.pt", "--share=0.5", "--set", "a=1", "--set=b=2", "--dry_run"});
  CHECK(values.model == "m.pt");
  CHECK(values.steps == 3);
  CHECK(values.share == 0.5);
  CHECK(values.sets == std::vector<std::string>{"a=1", "b=2"});
  CHECK(values.dry_run);
}

TEST_CASE("'-' and '_' are equal in the names of options, and only there", "[command_line]") {
  CHECK(parsed({"m.pt", "--dry-run"}).dry_run);
  CHECK(parsed({"m.pt", "--run-name=--a-b=c-d"}).name == "--a-b=c-d");
  CHECK(parsed({"m.pt", "--run-name", "--a-b"}).name == "--a-b");
  CHECK(parsed({"m-1.pt", "-n", "007"}).steps == 7);
  CHECK(parsed({"--", "--m-1.pt"}).model == "--m-1.pt");
}

TEST_CASE("the value of an option may look like an option or a list", "[command_line]") {
  for (const std::string text : {"-h", "--help", "--version", "-", "{}", "[a,b]", "MODEL"}) {
    CAPTURE(text);
    CHECK(parsed({"m.pt", "--run_name", text}).name == text);
    CHECK(parsed({"m.pt", "--set", text}).sets == std::vector{text});
  }
}

TEST_CASE("an unknown option is refused with the nearest known one", "[command_line]") {
  expect_refusal({"m.pt", "--stepz", "3"}, "unknown option --stepz (did you mean '--steps'?)");
  expect_refusal({"m.pt", "--dry-rum"}, "unknown option --dry_rum (did you mean '--dry_run'?)");
  expect_refusal({"m.pt", "--nothing_like_it=3"}, "unknown option --nothing_like_it;");
  expect_refusal({"m.pt", "-x"}, "unknown option -x;");
  expect_refusal({"--stepz", "--share", "much"}, "unknown option --stepz");  // before other mistakes
}

TEST_CASE("missing, superfluous and wrong values are refused", "[command_line]") {
  expect_refusal({}, "MODEL is required");
  expect_refusal({"m.pt", "n.pt"}, "unexpected argument 'n.pt'");
  expect_refusal({"m.pt", "--steps"}, "--steps needs a value");
  expect_refusal({"m.pt", "--steps="}, "--steps: needs a number");
  expect_refusal({"m.pt", "--steps", "1e3"}, "--steps: '1e3' is not a whole number");
  expect_refusal({"m.pt", "--steps", "9223372036854775808"},
                 "'9223372036854775808' is not between -9223372036854775808");
  expect_refusal({"m.pt", "--steps", "0"}, "--steps: 0 is too small; the minimum is 1");
  expect_refusal({"m.pt", "--steps", "1", "--steps", "2"}, "--steps is given more than once");
  expect_refusal({"m.pt", "--dry-run="}, "--dry_run takes no value");
  expect_refusal({"m.pt", "--dry_run=maybe"}, "--dry_run takes no value");
  expect_refusal({"m.pt", "--share", "0.4"}, "--share: 0.4 is too small; the minimum is 0.5");
  expect_refusal({"m.pt", "--share", "much"}, "--share: 'much' is not a number");
  expect_refusal({"m.pt", "--share", "nan"}, "--share: 'nan' is not a number");
  expect_refusal({"m.pt", "--share="}, "--share: needs a number");
  expect_refusal({"m.pt", "--run_name="}, "--run_name: the value is empty");
  expect_refusal({"m.pt", "a\nb\u202e"}, "unexpected argument 'a\\x0ab\\u202e'");
}

TEST_CASE("a flag with a function calls it once, and only when it is given", "[command_line]") {
  CHECK(parsed({"m.pt"}).num_calls == 0);
  CHECK(parsed({"m.pt", "--call"}).num_calls == 1);
  CHECK(parsed({"m.pt", "--call=true"}).num_calls == 1);
  CHECK(parsed({"m.pt", "--call=false"}).num_calls == 0);
  expect_refusal({"m.pt", "--call=maybe"}, "--call takes no value");
}
