// A config that is given as text: on standard input (-), or as the value of --config.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "apps/launcher/arguments.hpp"
#include "apps/launcher/commands.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using launcher::with_config_from_input;
using Words = std::vector<std::string>;

namespace {

// Standard input of this process, from a file, while this lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& text) : before_(::dup(STDIN_FILENO)) {
    const int file = ::open(dir_.write("input", text).c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  ~StandardInput() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  test::TempDir dir_;
  const int before_;
};

std::string refusal(ExitCode code, const std::string& input) {
  const StandardInput given(input);
  return test::message_of(code, "", [] { with_config_from_input({"m.pt", "--config", "-"}); });
}

}  // namespace

TEST_CASE("'-' stands for the config on standard input", "[launcher][config_input]") {
  const auto read = [](const Words& words) {
    const StandardInput input("train_batch_size: 4");
    return with_config_from_input(words);
  };
  const std::string text = "train_batch_size: 4\n";
  CHECK(read({"run", "m.pt", "--config", "-", "--steps", "3"}) ==
        Words{"run", "m.pt", "--config", text, "--steps", "3"});
  CHECK(read({"m.pt", "--config=-"}) == Words{"m.pt", "--config=" + text});
  CHECK(read({"config", "check", "-"}) == Words{"config", "check", text});
  for (const Words& others : {Words{"exec", "--", "p", "--config", "-"}, Words{"run", "m.pt", "--config", "ds.json"},
                              Words{"hosts", "--hostfile", "-"}, Words{}}) {
    CHECK(read(others) == others);
  }
}

TEST_CASE("standard input without a config is refused before anything starts", "[launcher][config_input]") {
  CHECK(refusal(ExitCode::kNoInput, " \n") == "--config -: standard input is empty");
  CHECK(refusal(ExitCode::kBadInput, std::string("a\0b", 3)) ==
        "--config -: standard input is not text: it has zero bytes");
  CHECK(refusal(ExitCode::kBadInput, std::string(100'000, 'a')) ==
        "--config -: the config is longer than 96 KiB: write it to a file");
}

TEST_CASE("config check takes the text itself", "[launcher][config_input]") {
  const test::CapturedOutput out(1);
  const test::CapturedOutput err(2);
  CHECK(launcher::dispatch({"config", "check", "{train_batch_size: 6}", "--world_size", "3"}) == 0);
  const StandardInput input("{\"train_batch_sise\": 6}");
  CHECK(launcher::dispatch({"config", "check", "-"}) == to_int(ExitCode::kBadInput));
  CHECK_THAT(err.text(), Catch::Matchers::Contains("--config:1:2: unknown key 'train_batch_sise'"));
}
