#include "everyday_options.hpp"

#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "base/shell_words.hpp"
#include "config/key_table.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

struct Wish {
  const char* option;
  const char* instead;  // "--OPTION", a key, "KEY=VALUE", or a sentence
};

// In the words of transformers' Trainer, Lightning and common scripts.
constexpr Wish kWishes[] = {
    {"--lr", "optimizer.params.lr"},
    {"--learning_rate", "optimizer.params.lr"},
    {"--batch_size", "train_micro_batch_size_per_gpu"},
    {"--micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"--per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"--global_batch_size", "train_batch_size"},
    {"--gradient_accumulation", "gradient_accumulation_steps"},
    {"--accumulate_grad_batches", "gradient_accumulation_steps"},
    {"--weight_decay", "optimizer.params.weight_decay"},
    {"--momentum", "optimizer.params.momentum"},
    {"--optimizer", "optimizer.type"},
    {"--optim", "optimizer.type"},
    {"--scheduler", "scheduler.type"},
    {"--lr_scheduler_type", "scheduler.type"},
    {"--warmup_steps", "scheduler.params.warmup_num_steps"},
    {"--num_warmup_steps", "scheduler.params.warmup_num_steps"},
    {"--max_grad_norm", "gradient_clipping"},
    {"--clip_grad_norm", "gradient_clipping"},
    {"--gradient_clip_val", "gradient_clipping"},
    {"--bf16", "bf16.enabled=true"},
    {"--fp16", "fp16.enabled=true"},
    {"--tf32", "tf32=true"},
    {"--zero_stage", "zero_optimization.stage"},
    {"--zero", "zero_optimization.stage"},
    {"--stage", "zero_optimization.stage"},
    {"--offload", "zero_optimization.offload_optimizer.device=cpu"},
    {"--gradient_checkpointing", "activation_checkpointing.enabled=true"},
    {"--save_steps", "checkpoint.interval"},
    {"--save_interval", "checkpoint.interval"},
    {"--save_total_limit", "checkpoint.keep_last"},
    {"--save_top_k", "checkpoint.keep_best"},
    {"--load_best_model_at_end", "checkpoint.keep_best=1"},
    {"--metric_for_best_model", "checkpoint.keep_best.metric"},
    {"--early_stopping_patience", "train.early_stopping.patience"},
    {"--metrics", "train.metrics"},
    {"--eval_steps", "train.eval_interval"},
    {"--eval_interval", "train.eval_interval"},
    {"--logging_steps", "steps_per_print"},
    {"--log_interval", "steps_per_print"},
    {"--seq_len", "data.seq_len"},
    {"--max_seq_length", "data.seq_len"},
    {"--num_workers", "data.num_workers"},
    {"--dataloader_num_workers", "data.num_workers"},
    {"--eval_data", "data.eval"},
    {"--validation_file", "data.eval"},
    {"--max_steps", "--steps"},
    {"--num_steps", "--steps"},
    {"--num_train_epochs", "--epochs"},
    {"--num_epochs", "--epochs"},
    {"--max_epochs", "--epochs"},
    {"--output_dir", "--run_dir"},
    {"--save_dir", "--run_dir"},
    {"--resume_from_checkpoint", "--resume"},
    {"--ckpt_path", "--resume"},
    {"--train_file", "--data"},
    {"--train_data", "--data"},
    {"--dataset", "--data"},
    {"--gpus", "--num_gpus"},
    {"--devices", "--num_gpus"},
    {"--nproc_per_host", "--num_gpus"},
    {"--world_size", "--num_gpus"},
    {"--background", "--detach"},
    {"--model", "the model is an argument without a name: dslaunch [options] MODEL.pt"},
    {"--model_name_or_path",
     "the model is a TorchScript file: 'tools/export --hf NAME model.pt', then dslaunch [options] model.pt"},
    {"--dropout", "dropout is part of the model: set it when the model is exported"},
};

std::string normal(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

// The value that was given with the option; empty: none.
std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with("--") || normal(*word) != option) continue;
    if (const size_t equals = word->find('='); equals != word->npos) return word->substr(equals + 1);
    return word + 1 != words.end() && !word[1].starts_with("-") ? word[1] : "";
  }
  return {};
}

// A key of the config with this name: the whole path, or the last part of one path only.
std::optional<std::string> key_named(const std::string& name) {
  if (config::find_key(name) != nullptr) return name;
  if (const auto* alias = config::find_alias(name)) return std::string(alias->path);
  const auto paths = config::paths_of_name(name);
  return paths.size() == 1 ? std::optional(paths.front()) : std::nullopt;
}

std::string set_option(const std::string& key, const std::string& value) {
  const bool is_whole = key.find('=') != key.npos;
  return shell_words({"--set", is_whole ? key : fmt::format("{}={}", key, value.empty() ? "VALUE" : value)});
}

}  // namespace

void answer_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover) {
  for (const auto& word : leftover) {
    if (!word.starts_with("--")) continue;
    const std::string name = normal(word), value = value_of(words, name);
    const auto* wish =
        std::find_if(std::begin(kWishes), std::end(kWishes), [&](const Wish& each) { return each.option == name; });
    const auto key = wish == std::end(kWishes) ? key_named(name.substr(2)) : std::string(wish->instead);
    if (!key) continue;
    if (key->starts_with("--"))
      usage_error(fmt::format("{} is {} {} here", name, *key, value.empty() ? "VALUE" : shell_word(value)));
    if (key->find(' ') != key->npos) usage_error(fmt::format("{}: {}", name, *key));
    usage_error(fmt::format("{} is a key of the config, not an option; on the command line: {}", name,
                            set_option(*key, value)));
  }
}

}  // namespace dslaunch::launcher
