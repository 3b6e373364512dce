#include "config/other_tools.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "config/key_table.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

TEST_CASE("what other tools call a key leads to one that is supported", "[config][other_tools]") {
  std::set<std::string_view> names;
  for (const auto& row : other_names()) {
    CAPTURE(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(row.remark.empty() == (!row.key.empty() || !row.option.empty()));
    const bool is_inside =
        row.key.starts_with(std::string(row.name) + ".") || row.key == std::string(row.name) + "=true";
    const KeySpec* same = find_key(row.name);
    CHECK((same == nullptr || same->status != Status::kSupported || is_inside));
    if (row.key.empty()) continue;
    const KeySpec* key = find_key(row.key.substr(0, row.key.find('=')));
    REQUIRE(key != nullptr);
    CHECK(key->status == Status::kSupported);
  }
}

TEST_CASE("a key under another tool's name is answered with ours", "[config][other_tools]") {
  const auto answer = [](const std::string& text) {
    return only_line(text).substr(std::string("ds.json:1:2: ").size());
  };
  CHECK(answer("{micro_batch_size: 4}") ==
        "unknown key 'micro_batch_size': it is 'train_micro_batch_size_per_gpu' here");
  CHECK(answer("{num_epochs: 3}") == "unknown key 'num_epochs': it is 'train.epochs' here");
  CHECK(answer("{per-device-train-batch-size: 4}") ==
        "unknown key 'per-device-train-batch-size': it is 'train_micro_batch_size_per_gpu' here");
  CHECK(answer("{output_dir: \"x\"}") == "unknown key 'output_dir': it is the option --run_dir here");
  CHECK(answer("{tensor_parallel_degree: 2}") ==
        "unknown key 'tensor_parallel_degree': it is 'tensor_parallel.size' here");
  CHECK_THAT(answer("{tp_plan: \"auto\"}"), Contains("the split follows from the model's graph"));
  CHECK_THAT(answer("{warmup_ratio: 0.1}"), Contains("and not a share of the run"));
  CHECK_THAT(only_line("{checkpoint: {every: 3}}"),
             Contains("'every' in 'checkpoint': it is 'checkpoint.interval' here"));
  CHECK_THAT(only_line("{checkpoint: {keep: 3}}"), Contains("it is 'checkpoint.keep_last' here"));
  CHECK_THAT(only_line("{data: {batch_size: 3}}"), Contains("it is 'train_micro_batch_size_per_gpu' here"));
  CHECK_THAT(only_line("{every: 3}"), !Contains("checkpoint"));  // only in that section
  CHECK_THAT(only_line("{train: {step: 3}}"),
             Contains("(did you mean 'steps'?)"));  // a typo of ours comes first
}

TEST_CASE("a file of another tool is named as what it is", "[config][other_tools]") {
  CHECK(lines_of(
            load_yaml("base_model: a/b\ndatasets: []\nsequence_len: 8\nmicro_batch_size: 2\ndeepspeed: z3.json\n")) ==
        std::vector<std::string>{
            "ds.yaml:1:1: this is a config of Axolotl (base_model, datasets, sequence_len), not a job file, which has "
            "DeepSpeed's keys and those of docs/config.md; the DeepSpeed config that it names: --config z3.json; as "
            "options of ours: --set data.seq_len=8 --set train_micro_batch_size_per_gpu=2; here 'datasets' is "
            "'data.train'"});
  const auto names = [](const std::string& text, const std::string& what) {
    CHECK_THAT(only_line(text), Contains("this is " + what));
  };
  names("{compute_environment: \"x\", num_machines: 1, deepspeed_config: {deepspeed_config_file: \"z.json\"}}",
        "a config of accelerate (compute_environment, num_machines, deepspeed_config)");
  CHECK_THAT(only_line("{num_machines: 1, machine_rank: 0, deepspeed_config: {deepspeed_config_file: \"z.json\"}}"),
             Contains("--config z.json"));
  names("{finetuning_type: \"lora\", template: \"x\", bf16: true, output_dir: \"o\"}", "a config of LLaMA-Factory");
  names("{output_dir: \"o\", num_train_epochs: 3}", "a file of transformers' TrainingArguments");
  names("{architectures: [], model_type: \"gpt2\", vocab_size: 5}", "the config.json of a Hugging Face model");
  names("{apiVersion: \"v1\", kind: \"Job\", metadata: {}}", "a manifest of Kubernetes");
  const auto options = [](const std::string& text) {
    const std::string line = only_line(text);
    const size_t begin = line.find("as options of ours: ");
    return begin == line.npos ? "" : line.substr(begin + 20, line.find(';', begin) - begin - 20);
  };
  CHECK(options("{num_machines: 2, num_processes: 16, mixed_precision: \"bf16\", deepspeed_config: {zero_stage: 2, "
                "offload_optimizer_device: \"cpu\", gradient_clipping: 1.0, zero3_init_flag: false}}") ==
        "--num_nodes 2 --num_gpus 8 --set bf16.enabled=true --set zero_optimization.stage=2 --set "
        "zero_optimization.offload_optimizer.device=cpu --set gradient_clipping=1");
  CHECK(options("{num_machines: 1, machine_rank: 0, num_processes: 4, mixed_precision: \"no\"}") == "--num_gpus 4");
  CHECK(options("{num_machines: 3, num_processes: 16}") == "--num_nodes 3");
  const std::string factory =
      "{stage: \"sft\", finetuning_type: \"lora\", template: \"x\", dataset: \"identity\", learning_rate: 1.0e-4, "
      "num_train_epochs: 3.0, lr_scheduler_type: \"no such schedule\", bf16: true, output_dir: \"my out\"}";
  CHECK(options(factory) ==
        "--run_dir 'my out' --set optimizer.params.lr=0.0001 --set train.epochs=3 --set bf16.enabled=true");
  CHECK_THAT(only_line(factory), Contains("here 'dataset' is 'data.train', 'lr_scheduler_type' is 'scheduler.type'") &&
                                     !Contains("zero_optimization.stage"));
  // Keys that strayed into a job file do not make it another tool's.
  CHECK(load("{output_dir: 1, save_steps: 3, optimizer: {}, zero_optimization: {}}").issues.size() == 2);
}

TEST_CASE("TOML is named and not read as HJSON", "[config][other_tools]") {
  CHECK(only_line("# torchtitan\n\n[training]\nsteps = 10\n") ==
        "ds.json:1:1: this is TOML ([training]), as torchtitan's configs are; a job file is JSON, HJSON or YAML with "
        "DeepSpeed's keys and those of docs/config.md");
  CHECK_THAT(only_line("steps = 10\n"), Contains("this is TOML (steps = 10)"));
  CHECK(good("loss: \"a=b.pt\"\n").loss == "a=b.pt");
}
