// Configs that are refused, as the launcher and every rank load them (load_file, throw_if_bad): the whole answer and
// the exit code.
#include <catch2/catch.hpp>

#include "config/load.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using test::message_of;

namespace {

struct Slip {
  std::string text, answer;
};

}  // namespace

TEST_CASE("a config with a slip is refused with its place and exit code 65", "[config][bad_config]") {
  const auto slip = GENERATE(values<Slip>({
      {"", "DIR/ds.json:1:1: empty: the file has no object; write {} to use every default, or see docs/config.md"},
      {"[1, 2]", "DIR/ds.json:1:1: expected an object with keys, got a list"},
      {"{\n \"train_batch_size\": 4,\n \"optimizer\": {]\n}\n", "DIR/ds.json:3:16: expected a key, got ']'"},
      {"{\n \"train_batch_size\": 36,\n \"gradient_clipp1ng\": 1.0\n}\n",
       "DIR/ds.json:3:2: unknown key 'gradient_clipp1ng' (did you mean 'gradient_clipping'?)"},
      {"{\"gradient_clipp1ng\": 1.0, \"wall_clock_brakdown\": true}",
       "DIR/ds.json:1:2: unknown key 'gradient_clipp1ng' (did you mean 'gradient_clipping'?)\n"
       "DIR/ds.json:1:28: unknown key 'wall_clock_brakdown' (did you mean 'wall_clock_breakdown'?)"},
      {"{\"gradient_clipping\": \"much\"}",
       "DIR/ds.json:1:23: 'gradient_clipping' must be a number, not the text \"much\""},
      {"{\"zero_optimization\": {\"stage\": 7}}", "DIR/ds.json:1:33: 'zero_optimization.stage' must be 0 to 3, not 7"},
      {"{\"zero_optimization\": {\"stage\": 4}}", "DIR/ds.json:1:33: 'zero_optimization.stage' must be 0 to 3, not 4"},
      {"{\"optimizer\": {\"type\": \"Adamm\", \"params\": {\"lr\": 1e-3}}}",
       "DIR/ds.json:1:24: 'optimizer.type' must be AdamW, Adam, SGD, Adagrad, Lamb, Lion, Muon, RMSprop, NAdam, RAdam, "
       "Adamax, "
       "Adadelta, Rprop, ASGD, Adafactor, AdamW8bit, OneBitAdam, OneBitLamb or ZeroOneAdam, not the text "
       "\"Adamm\" (did you mean 'AdamW'?)"},
      {"{\"scheduler\": {\"type\": \"WarmUpLRR\", \"params\": {}}}",
       "DIR/ds.json:1:24: 'scheduler.type' must be WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle, "
       "linear, cosine, constant or constant_with_warmup, not the text \"WarmUpLRR\" (did you "
       "mean 'WarmupLR'?)"},
      {"{\"train_batch_size\": 36, \"train_batch_size\": 12}",
       "DIR/ds.json:1:26: the key 'train_batch_size' is given twice in one object (first in line 1, column 2); remove "
       "one"},
      {"{\"train_batch_size\": 37, \"train_micro_batch_size_per_gpu\": 18}",
       "DIR/ds.json:1:2: train_batch_size 37 cannot be split: train_micro_batch_size_per_gpu 18 × 2 ranks = 36 does "
       "not divide it, so gradient_accumulation_steps cannot be an integer; set train_batch_size to 36 or 72"},
      // Python's words, and placeholders of templates.
      {"{\"fp16\": {\n\"enabled\": True,\n\"hysteresis\": None\n}}",
       "DIR/ds.json:2:12: 'fp16.enabled' must be true or false, not the text \"True,\"; True is Python's spelling: "
       "write "
       "true\n"
       "DIR/ds.json:3:15: 'fp16.hysteresis' must be an integer, not the text \"None\"; None is Python's spelling: "
       "leave "
       "the key out"},
      {"{\"fp16\": {\"enabled\": True}}",
       "DIR/ds.json:1:10: the object that opens here is never closed: a '}' is missing; the text \"True}}\" in line 1, "
       "column 22 runs to the end of its line because it has no quotes; True is Python's spelling: write true"},
      {"{\"gradient_clipping\": {{ clip }}, \"train_batch_size\": \"CONFIG_BATCH_SIZE\"}",
       "DIR/ds.json:1:23: 'gradient_clipping' must be a number, not the text \"{{ clip }}\"; it looks like a "
       "placeholder "
       "that was not filled in: write a value\n"
       "DIR/ds.json:1:55: 'train_batch_size' must be an integer, not the text \"CONFIG_BATCH_SIZE\"; it looks like a "
       "placeholder that was not filled in: write a value"},
      {"{{% if fp16 %}}", "DIR/ds.json:1:1: a template starts here, not a key; fill in its values first"},
      // What is said once is enough.
      {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 0}}}",
       "DIR/ds.json:1:71: 'scheduler.params.total_num_steps' must be at least 1, not 0"},
      {"{\"amp\": {\"enabled\": 3}}", "DIR/ds.json:1:21: 'amp.enabled' must be true or false, not 3"},
      {"{\"bf16\": true}", "DIR/ds.json:1:10: 'bf16' must be an object, not true; write {\"enabled\": true}"},
      {"{\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}}",
       "DIR/ds.json:1:28: not supported yet: 'fp16.fp16_master_weights_and_grads' = true (masters and gradients in "
       "fp16: updates below half of a weight's last bit would be lost; masters are fp32, with offload_optimizer in "
       "host "
       "memory); leave it out or switch it off"},
  }));
  const test::TempDir dir;
  const std::string path = dir.write("ds.json", slip.text);
  CHECK(message_of(ExitCode::kBadInput, dir.path(),
                   [&] { config::throw_if_bad(config::load_file(path, {}, {.world_size = 2})); }) == slip.answer);
}

TEST_CASE("a config that is not there is refused with exit code 66", "[config][bad_config]") {
  const test::TempDir dir;
  CHECK(message_of(ExitCode::kNoInput, dir.path(), [&] {
          config::throw_if_bad(config::load_file(dir / "none.json"));
        }) == "cannot read the job file 'DIR/none.json': No such file or directory");
}
