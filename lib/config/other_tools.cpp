#include "config/other_tools.hpp"

#include <algorithm>
#include <cctype>

#include "base/format.hpp"
#include "base/shell_words.hpp"
#include "base/split.hpp"
#include "config/key_table.hpp"

namespace dslaunch::config {
namespace {

constexpr std::string_view kModel =
    "the model is a TorchScript file: 'tools/export --hf NAME model.pt', then dslaunch [options] model.pt";
constexpr std::string_view kPrecision = "the precision is bf16.enabled or fp16.enabled; without them it is fp32";
constexpr std::string_view kBetas = "both betas are one key, optimizer.params.betas: [0.9, 0.999]";
constexpr std::string_view kEvaluationBatch = "evaluations use the micro batch of training";
constexpr std::string_view kWarmupRatio =
    "a warm-up has a number of steps, scheduler.params.warmup_num_steps, and not a share of the run";
constexpr std::string_view kTensorPlan =
    "the split follows from the model's graph: only tensor_parallel.size is needed, and tensor_parallel.policy where "
    "the graph shall not decide";
constexpr std::string_view kMonitors = "monitors are sections: tensorboard, wandb, csv_monitor";

// In the words of transformers' Trainer, Lightning, LLaMA-Factory, Axolotl, accelerate, torchtitan, Megatron-LM and
// common scripts, and words that suggest themselves in sections of ours.
constexpr OtherName kNames[] = {
    // optimizer and schedule
    {"lr", "optimizer.params.lr"},
    {"learning_rate", "optimizer.params.lr"},
    {"weight_decay", "optimizer.params.weight_decay"},
    {"momentum", "optimizer.params.momentum"},
    {"optim", "optimizer.type"},
    {"optimizer", "optimizer.type"},
    {"optimizer_name", "optimizer.type"},
    {"adam_epsilon", "optimizer.params.eps"},
    {"adam_eps", "optimizer.params.eps"},
    {"adam_beta1", "", "", kBetas},
    {"adam_beta2", "", "", kBetas},
    {"beta1", "", "", kBetas},
    {"beta2", "", "", kBetas},
    {"scheduler", "scheduler.type"},
    {"lr_scheduler", "scheduler.type"},
    {"lr_scheduler_type", "scheduler.type"},
    {"lr_decay_style", "scheduler.type"},
    {"warmup_steps", "scheduler.params.warmup_num_steps"},
    {"num_warmup_steps", "scheduler.params.warmup_num_steps"},
    {"lr_warmup_iters", "scheduler.params.warmup_num_steps"},
    {"warmup_ratio", "", "", kWarmupRatio},
    {"max_grad_norm", "gradient_clipping"},
    {"clip_grad_norm", "gradient_clipping"},
    {"clip_grad", "gradient_clipping"},
    {"grad_clip", "gradient_clipping"},
    {"max_norm", "gradient_clipping"},
    {"gradient_clip_val", "gradient_clipping"},
    // batch
    {"batch_size", "train_micro_batch_size_per_gpu"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_gpu_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"local_batch_size", "train_micro_batch_size_per_gpu"},
    {"global_batch_size", "train_batch_size"},
    {"total_batch_size", "train_batch_size"},
    {"effective_batch_size", "train_batch_size"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"grad_accum_steps", "gradient_accumulation_steps"},
    {"accumulation_steps", "gradient_accumulation_steps"},
    {"accumulate_grad_batches", "gradient_accumulation_steps"},
    {"per_device_eval_batch_size", "", "", kEvaluationBatch},
    {"eval_batch_size", "", "", kEvaluationBatch},
    // precision, memory
    {"bf16", "bf16.enabled=true"},
    {"fp16", "fp16.enabled=true"},
    {"tf32", "tf32=true"},
    {"dtype", "", "", kPrecision},
    {"precision", "", "", kPrecision},
    {"mixed_precision", "", "", kPrecision},
    {"torch_dtype", "", "", kPrecision},
    {"zero", "zero_optimization.stage"},
    {"zero_stage", "zero_optimization.stage"},
    {"stage", "zero_optimization.stage"},
    {"tp_size", "tensor_parallel.size", "--tp"},
    {"tp_degree", "tensor_parallel.size", "--tp"},
    {"tensor_parallel_size", "tensor_parallel.size", "--tp"},
    {"tensor_parallel_degree", "tensor_parallel.size", "--tp"},
    {"tensor_model_parallel_size", "tensor_parallel.size", "--tp"},
    {"model_parallel_size", "tensor_parallel.size", "--tp"},
    {"tensor_parallel.degree", "tensor_parallel.size", "--tp"},
    {"parallelism_config_tp_size", "tensor_parallel.size", "--tp"},
    {"megatron_lm_tp_degree", "tensor_parallel.size", "--tp"},
    {"async_tp", "tensor_parallel.overlap"},
    {"sequence_parallel", "tensor_parallel.sequence_parallel"},
    {"megatron_lm_sequence_parallelism", "tensor_parallel.sequence_parallel"},
    {"tp_plan", "", "", kTensorPlan},
    {"pipeline_parallel_degree", "pipeline.stages", "--stages"},
    {"pipeline_model_parallel_size", "pipeline.stages", "--stages"},
    {"offload", "zero_optimization.offload_optimizer.device=cpu"},
    {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    {"offload_param_device", "zero_optimization.offload_param.device"},
    {"gradient_checkpointing", "activation_checkpointing.enabled=true"},
    // data
    {"train_file", "data.train", "--data"},
    {"train_data", "data.train", "--data"},
    {"dataset", "data.train", "--data"},
    {"datasets", "data.train", "--data"},
    {"data_path", "data.train", "--data"},
    {"data.path", "data.train"},
    {"data.paths", "data.train"},
    {"data.file", "data.train"},
    {"data.files", "data.train"},
    {"eval_data", "data.eval"},
    {"eval_file", "data.eval"},
    {"validation_file", "data.eval"},
    {"data.val", "data.eval"},
    {"data.valid", "data.eval"},
    {"data.validation", "data.eval"},
    {"data.test", "data.eval"},
    {"seq_len", "data.seq_len"},
    {"seq_length", "data.seq_len"},
    {"sequence_len", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"max_seq_length", "data.seq_len"},
    {"max_length", "data.seq_len"},
    {"block_size", "data.seq_len"},
    {"cutoff_len", "data.seq_len"},
    {"num_workers", "data.num_workers"},
    {"dataloader_num_workers", "data.num_workers"},
    {"data.workers", "data.num_workers"},
    {"prefetch_factor", "data.prefetch"},
    {"dataloader_prefetch_factor", "data.prefetch"},
    {"data.targets", "data.labels"},
    {"label_names", "data.labels"},
    {"data.columns", "data.inputs"},
    // length of the run, evaluations
    {"max_steps", "train.steps", "--steps"},
    {"num_steps", "train.steps", "--steps"},
    {"total_steps", "train.steps", "--steps"},
    {"train_iters", "train.steps", "--steps"},
    {"max_iters", "train.steps", "--steps"},
    {"iterations", "train.steps", "--steps"},
    {"epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs", "--epochs"},
    {"num_epochs", "train.epochs", "--epochs"},
    {"max_epochs", "train.epochs", "--epochs"},
    {"eval_steps", "train.eval_interval"},
    {"eval_interval", "train.eval_interval"},
    {"eval_every", "train.eval_interval"},
    {"evals_per_epoch", "train.eval_interval"},
    {"val_check_interval", "train.eval_interval"},
    {"metrics", "train.metrics"},
    {"train.prompts", "train.samples.prompts"},
    {"sample_prompts", "train.samples.prompts"},
    {"train.samples.max_new_tokens", "train.samples.num_tokens"},
    {"generation_max_length", "train.samples.num_tokens"},
    {"predict_with_generate", "train.samples"},
    {"early_stopping_patience", "train.early_stopping.patience"},
    {"train.patience", "train.early_stopping.patience"},
    {"logging_steps", "steps_per_print"},
    {"log_interval", "steps_per_print"},
    {"log_freq", "steps_per_print"},
    {"log_every", "steps_per_print"},
    {"log_every_n_steps", "steps_per_print"},
    {"report_to", "", "", kMonitors},
    {"wandb_project", "wandb.project"},
    // checkpoints
    {"save_steps", "checkpoint.interval"},
    {"save_interval", "checkpoint.interval"},
    {"save_every", "checkpoint.interval"},
    {"save_freq", "checkpoint.interval"},
    {"every_n_train_steps", "checkpoint.interval"},
    {"checkpoint.every", "checkpoint.interval"},
    {"checkpoint.every_n_steps", "checkpoint.interval"},
    {"checkpoint.steps", "checkpoint.interval"},
    {"checkpoint.freq", "checkpoint.interval"},
    {"checkpoint.frequency", "checkpoint.interval"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"keep_latest_k", "checkpoint.keep_last"},
    {"max_to_keep", "checkpoint.keep_last"},
    {"checkpoint.keep", "checkpoint.keep_last"},
    {"checkpoint.limit", "checkpoint.keep_last"},
    {"save_top_k", "checkpoint.keep_best"},
    {"checkpoint.best", "checkpoint.keep_best"},
    {"save_best", "checkpoint.keep_best"},
    {"load_best_model_at_end", "checkpoint.keep_best=1"},
    {"metric_for_best_model", "checkpoint.keep_best.metric"},
    {"checkpoint.path", "checkpoint.dir"},
    {"checkpoint.folder", "checkpoint.dir"},
    {"checkpoint.directory", "checkpoint.dir"},
    {"checkpoint.save_dir", "checkpoint.dir"},
    {"checkpoint.async_save", "checkpoint.async"},
    {"save_last", "checkpoint.at_end"},
    // the job
    {"output_dir", "", "--run_dir"},
    {"save_dir", "", "--run_dir"},
    {"dump_folder", "", "--run_dir"},
    {"resume_from_checkpoint", "", "--resume"},
    {"checkpoint.resume", "", "--resume"},
    {"ckpt_path", "", "--resume"},
    {"run_name", "", "--name"},
    {"gpus", "", "--num_gpus"},
    {"devices", "", "--num_gpus"},
    {"num_processes", "", "--num_gpus"},
    {"nproc_per_host", "", "--num_gpus"},
    {"world_size", "", "--num_gpus"},
    {"background", "", "--detach"},
    {"dropout", "", "", "dropout is part of the model: set it when the model is exported"},
    {"model", "", "",
     "the model is an argument without a name: dslaunch [options] MODEL.pt; from Hugging Face it comes by "
     "'tools/export --hf NAME model.pt'"},
    {"model_name_or_path", "", "", kModel},
    {"base_model", "", "", kModel},
    {"model_name", "", "", kModel},
};

// A kind of file, recognized by at least `least` keys of its top level, which job files do not have.
struct OtherFile {
  std::string_view what;
  std::string_view keys;
  int least;
};

// The first that fits counts, so a tool that takes another's keys as well stands before it.
constexpr OtherFile kFiles[] = {
    {"a config of LLaMA-Factory", "finetuning_type|template|cutoff_len|lora_target|dataset_dir|do_train", 2},
    {"a config of Axolotl", "base_model|datasets|sequence_len|val_set_size|adapter|special_tokens|sample_packing", 2},
    {"a config of accelerate",
     "compute_environment|distributed_type|num_processes|num_machines|machine_rank|mixed_precision|deepspeed_config|"
     "fsdp_config|main_process_port|rdzv_backend",
     2},
    {"a file of transformers' TrainingArguments",
     "output_dir|per_device_train_batch_size|num_train_epochs|save_steps|save_strategy|save_total_limit|logging_steps|"
     "eval_strategy|evaluation_strategy|lr_scheduler_type|learning_rate|warmup_ratio|report_to|"
     "load_best_model_at_end|max_steps",
     2},
    {"the config.json of a Hugging Face model", "architectures|model_type|hidden_size|num_hidden_layers|vocab_size", 3},
    {"a manifest of Kubernetes", "apiVersion|kind|metadata|spec", 3},
    {"a config of Lightning's command line", "trainer|seed_everything|model|ckpt_path|fit", 2},
    {"a config of torchtune", "tokenizer|checkpointer|metric_logger|lr_scheduler|output_dir|model", 3},
};

constexpr size_t kMaxTranslations = 8;

std::string normal(std::string_view name) {
  std::string out(name);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return out;
}

bool has_name(const OtherName& row, const std::string& wanted) {
  const auto names = split(row.name, '|');
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.ends_with('*') ? wanted.starts_with(name.substr(0, name.size() - 1)) : name == wanted;
  });
}

bool is_known_section(const Value& root, const std::string& name) {
  const KeySpec* spec = find_key(name);
  return spec != nullptr && (spec->kind == Kind::kSection || spec->kind == Kind::kNamed) &&
         root.find(name)->is_object();
}

// The DeepSpeed file that a config of another tool names.
std::string deepspeed_file_of(const Value& root) {
  const Value* file = root.find("deepspeed");
  if (const Value* section = root.find("deepspeed_config"); section != nullptr && section->is_object())
    file = section->find("deepspeed_config_file");
  return file != nullptr && file->is_string() ? file->text : "";
}

// A word where the key here takes a number: it means something else there, as LLaMA-Factory's "stage: sft".
bool is_of_other_kind(const OtherName& other, const Value& value) {
  const KeySpec* key = find_key(other.key);
  const bool is_number = key != nullptr && (key->kind == Kind::kInt || key->kind == Kind::kFloat);
  return is_number && value.is_string();
}

// What else has a name here, besides the keys that have become options.
std::string translations_of(const Value& root, const std::vector<std::string>& taken) {
  std::vector<std::string> lines;
  for (const auto& member : root.members) {
    const OtherName* other = find_other_name("", member.key);
    if (other == nullptr || !other->remark.empty() || find_key(member.key) != nullptr) continue;
    if (std::find(taken.begin(), taken.end(), member.key) != taken.end() || is_of_other_kind(*other, member.value))
      continue;
    if (lines.size() == kMaxTranslations) {
      lines.emplace_back("…");
      break;
    }
    lines.push_back(fmt::format("'{}' is {}", member.key, describe(*other)));
  }
  return fmt::format("{}", fmt::join(lines, ", "));
}

}  // namespace

std::span<const OtherName> other_names() {
  return kNames;
}

const OtherName* find_other_name(std::string_view section, std::string_view name) {
  const std::string alone = normal(name), whole = section.empty() ? alone : normal(join_path(section, name));
  for (const auto& wanted : {whole, alone}) {
    for (const auto rows : {other_names(), other_options()}) {
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return has_name(row, wanted); });
      if (found != rows.end()) return &*found;
    }
  }
  return nullptr;
}

std::string describe(const OtherName& other) {
  if (!other.remark.empty()) return std::string(other.remark);
  if (other.key.empty()) return fmt::format("the option {}", other.option);
  return fmt::format("'{}'", other.key.substr(0, other.key.find('=')));
}

std::optional<std::string> describe_other_file(const Value& root) {
  const auto num_sections = std::count_if(root.members.begin(), root.members.end(),
                                          [&](const auto& member) { return is_known_section(root, member.key); });
  for (const auto& file : kFiles) {
    std::vector<std::string> present;
    for (const auto& key : split(file.keys, '|')) {
      if (root.find(key) != nullptr && find_key(key) == nullptr) present.push_back(key);
    }
    const auto num_present = static_cast<std::ptrdiff_t>(present.size());
    if (num_present < file.least || num_present <= num_sections) continue;
    if (present.size() > 3) present.resize(3);
    std::string out =
        fmt::format("this is {} ({}), not a job file, which has DeepSpeed's keys and those of docs/config.md",
                    file.what, fmt::join(present, ", "));
    if (const auto named = deepspeed_file_of(root); !named.empty())
      out += fmt::format("; the DeepSpeed config that it names: --config {}", named);
    const TakenOptions taken = take_options(root);
    if (!taken.words.empty()) out += "; as options of ours: " + shell_words(taken.words);
    if (const auto lines = translations_of(root, taken.keys); !lines.empty()) out += "; here " + lines;
    return out;
  }
  return std::nullopt;
}

}  // namespace dslaunch::config
