// What dsworker's command line refuses, and its help, through dispatch(), which main() calls.
#include <catch2/catch.hpp>

#include "apps/worker/commands.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using Catch::Matchers::Contains;
using test::message_of;

namespace {

struct Slip {
  std::vector<std::string> words;
  std::string answer;
};

const std::vector<Slip>& slips() {
  static const std::vector<Slip> all{
      {{"train"}, "MODEL.pt is required; see 'dsworker train --help'"},
      {{"train", "m.pt", "--stepz", "3"},
       "unknown option --stepz (did you mean '--steps'?); see 'dsworker train --help'"},
      {{"train", "m.pt", "--verify", "0"}, "--verify: 0 is too small; the minimum is 1; see 'dsworker train --help'"},
      {{"train", "m.pt", "--eval_only", "--verify", "3"},
       "--verify compares training steps, and --eval_only takes none"},
      {{"infer", "--checkpoint", "c"},
       "continue which text? --prompt TEXT, --prompts FILE, --messages FILE or --ids 1,2,3"},
      {{"consolidate", "c", "o.pt", "--max-memory", "500"},
       "--max_memory needs a size with a unit, as 500MB or 2GB, but got '500'"},
      {{"consolidate", "c", "o.safetensors", "--max_memory", "1"},
       "--max_memory needs a size with a unit, as 500MB or 2GB, but got '1'"},
      {{"consolidate", "c", "o.safetensors", "--max_memory", "1MB"},
       "--max_memory is 1000000 bytes, but at least 16 MB are needed"},
      {{"consolidate", "c", "o.safetensors", "--max_shard_size", "-3GB"},
       "--max_shard_size needs a size with a unit, as 500MB or 2GB, but got '-3GB'"},
      {{"consolidate", "c", "o.safetensors", "--dtype", "int8"}, "--dtype must be fp32, bf16 or fp16, not int8"},
      {{"consolidate", "c"}, "consolidate needs OUT.safetensors, OUT.pt or --hf OUT_DIR"},
      {{"consolidate", "c", "o.pt", "--hf", "d"}, "consolidate writes either 'o.pt' or --hf 'd'"},
      {{"consolidate", "c", "o.pt", "--merge_lora"}, "--merge_lora goes with --hf OUT_DIR"},
      {{"consolidate", "c", "o.pt", "--hf_source", "d"}, "--hf_source goes with --hf OUT_DIR"},
      {{"consolidate", "c", "--hf", "d", "--state_dict"},
       "--state_dict does not go with --hf, which writes safetensors"},
      {{"consolidate", "c", "--hf", "d", "--max_memory", "1MB"},
       "--max_memory is 1000000 bytes, but at least 16 MB are needed"},
      {{"bench"}, "MODEL.pt is required; see 'dsworker bench --help'"},
      {{"bench", "m.pt", "--against", "jax"}, "--against must be torch, not 'jax'"},
      {{"bench", "m.pt", "--warmup", "1"}, "--warmup: 1 is too small; the minimum is 2; see 'dsworker bench --help'"},
      {{"plan"}, "MODEL.pt is missing"},
      {{"plan", "m.pt", "--gpu_memory", "much"},
       "--gpu_memory much: expected a size with a unit, as 80GiB, 80G or 85GB"},
      {{"plan", "m.pt", "--device", "tpu"}, "--device must be auto, cpu or cuda, not 'tpu'"},
      {{"import", "d", "o", "p"}, "unexpected argument 'p'; see 'dsworker import --help'"},
  };
  return all;
}

}  // namespace

TEST_CASE("dsworker answers a slip in its options with exit code 64", "[worker][words]") {
  const test::CapturedOutput out(1);
  for (const Slip& slip : slips()) {
    CAPTURE(slip.words);
    CHECK(message_of(ExitCode::kUsage, "", [&] { worker::dispatch(slip.words); }) == slip.answer);
  }
  CHECK(out.text().empty());
}

TEST_CASE("dsworker names the nearest command", "[worker][words]") {
  const test::CapturedOutput err(2);
  CHECK(worker::dispatch({"trian"}) == to_int(ExitCode::kUsage));
  CHECK_THAT(err.text(), Contains("error: unknown command 'trian' (did you mean 'train'?)\n"));
}

TEST_CASE("the last of repeated options of dsworker wins, and a value may look like an option", "[worker][words]") {
  CHECK(message_of(ExitCode::kNoInput, "", [] {
          worker::dispatch(
              {"infer", "--checkpoint", "/nowhere/first", "--prompt", "--help", "--checkpoint=/nowhere/last"});
        }) == "no checkpoint at '/nowhere/last': no such directory");
}

TEST_CASE("dsworker's help lists all options of its commands", "[worker][words]") {
  const test::CapturedOutput out(1);
  const test::CapturedOutput err(2);
  CHECK(worker::dispatch({"--help"}) == 0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> commands{
      {"train", {"inputs a,b", "labels c", "loss", "device auto|cpu|cuda", "epochs N", "seed N", "quiet", "verbose"}},
      {"infer", {"checkpoint CKPT", "prompt TEXT", "context N", "num_beams N"}},
      {"serve", {"port N", "token_file FILE", "max_body SIZE", "cache_bytes SIZE"}},
      {"consolidate", {"dtype fp32|bf16|fp16", "json"}},
      {"import", {"tag TAG", "overwrite"}},
      {"plan", {"gpu_memory SIZE", "measure", "largest"}}};
  for (const auto& [command, options] : commands) {
    CHECK_THAT(out.text(), Contains("  dsworker " + command + " "));
    const test::CapturedOutput alone(1);
    CHECK(worker::dispatch({command, "--help"}) == 0);
    CHECK_THAT(alone.text(), Contains("usage: dsworker " + command + " "));
    for (const auto& option : options) CHECK_THAT(alone.text(), Contains("\n  --" + option + " "));
  }
  CHECK(err.text().empty());
}
