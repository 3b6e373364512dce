// Options of the commands on checkpoints: consolidate, import.
#include "base/error.hpp"
#include "base/format.hpp"
#include "command_line.hpp"
#include "options.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

void refuse_program_words(const Arguments& arguments) {
  if (!arguments.has_separator || arguments.program.empty()) return;
  usage_error(fmt::format("unexpected argument after '--': '{}'", arguments.program[0]));
}

// Builds the worker's arguments from the options that were given, under the worker's names.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
  void option(const char* name, const std::string& value) {
    if (!value.empty()) words_.insert(words_.end(), {name, value});
  }
  void operand(const std::string& value) { words_.push_back(value); }
  void flag(const char* name, bool given) {
    if (given) words_.emplace_back(name);
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::optional<std::vector<std::string>> read_consolidate_options(const Arguments& arguments) {
  std::string checkpoint, output;
  std::string max_memory, max_shard_size, dtype;
  std::string hf, hf_source;
  bool state_dict = false, exclude_frozen = false, merge_lora = false, json = false;
  CommandLine line("dslaunch consolidate", "usage: dslaunch consolidate CKPT OUT|--hf OUT_DIR [options]",
                   "  dslaunch consolidate runs/a model.safetensors\n"
                   "  dslaunch consolidate last model.safetensors       of the newest job\n"
                   "  dslaunch consolidate runs/a model.pt              TorchScript with the trained weights\n"
                   "  dslaunch consolidate runs/a weights.pt --state_dict   name -> tensor, for torch.load\n"
                   "  dslaunch consolidate runs/a model.safetensors --max_shard_size 5GB   several files and an index\n"
                   "  dslaunch consolidate runs/a model.safetensors --dtype bf16 --max_memory 500MB\n"
                   "  dslaunch consolidate runs/a --hf tuned --dtype bf16    a directory for from_pretrained\n");
  line.app().add_option(
      "CKPT", checkpoint,
      "a run directory, a directory of checkpoints, one checkpoint, or a job: its name, its id or 'last'");
  line.app().add_option("OUT", output, "OUT.safetensors, OUT.pt or OUT.bin");
  line.value("--hf", hf, "a directory that from_pretrained of transformers or peft loads", "OUT_DIR");
  line.value("--hf_source", hf_source, "where its tokenizer's files are; default: where the model came from", "DIR");
  line.flag("--merge_lora", merge_lora, "with --hf: the whole model, its adapter added to the weights");
  line.flag("--state_dict", state_dict, "a .pt with names and tensors only");
  line.value("--max_memory", max_memory, "for weights, in addition to the program's own 0.2 GB (1GB)", "SIZE");
  line.value("--max_shard_size", max_shard_size, "a file larger than that becomes several (with --hf 5GB)", "SIZE");
  line.flag("--exclude_frozen_parameters", exclude_frozen, "without the parameters that are not trained");
  line.value("-d,--dtype", dtype, "of floating-point tensors; default: the model's own, with --hf fp32",
             "fp32|bf16|fp16");
  line.flag("--json", json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (checkpoint.empty() || (output.empty() && hf.empty())) {
    throw UserError(ExitCode::kUsage,
                    "dslaunch consolidate CKPT OUT: both are needed (or --hf OUT_DIR in place of OUT)");
  }
  Words words({"consolidate", run_directory(checkpoint)});
  if (!output.empty()) words.operand(output);
  words.option("--hf", hf);
  words.option("--hf_source", hf_source);
  words.flag("--merge_lora", merge_lora);
  words.flag("--state_dict", state_dict);
  words.option("--max_memory", max_memory);
  words.option("--max_shard_size", max_shard_size);
  words.flag("--exclude_frozen_parameters", exclude_frozen);
  words.option("--dtype", dtype);
  words.flag("--json", json);
  return words.take();
}

std::optional<std::vector<std::string>> read_import_options(const Arguments& arguments) {
  std::string source, output, tag, model;
  bool json = false, skip_checksums = false, overwrite = false;
  CommandLine line("dslaunch import", "usage: dslaunch import DS_CHECKPOINT_DIR OUT [options]",
                   "  dslaunch import ds_run/ckpt runs/a/checkpoints --model model.pt\n"
                   "  dslaunch model.pt --config ds.json --run_dir runs/a --resume auto       resume from it\n"
                   "  dslaunch import ds_run/ckpt imported --tag global_step500               an older one\n"
                   "  dslaunch consolidate imported weights.safetensors                       only its weights\n"
                   "Reads what DeepSpeed's save_checkpoint() wrote: ZeRO stages 0 to 3, data-parallel.\n");
  line.app().add_option("DS_CHECKPOINT_DIR", source, "the directory with 'latest', or a tag's directory");
  line.app().add_option("OUT", output, "the directory of checkpoints to write OUT/step_N to");
  line.value("--tag", tag, "which checkpoint; default: the one that 'latest' names", "TAG");
  line.value("--model", model, "names, kinds and code of the model that will resume", "MODEL.pt");
  line.flag("--overwrite", overwrite, "replace a checkpoint of the same step in OUT");
  line.flag("--json", json, "one JSON document on standard output");
  line.flag("--skip_checksums", skip_checksums, "for files saved by torch with CRC32 off");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (source.empty() || output.empty()) {
    throw UserError(ExitCode::kUsage, "dslaunch import DS_CHECKPOINT_DIR OUT: both are needed");
  }
  Words words({"import", source, output});
  words.option("--tag", tag);
  words.option("--model", model);
  words.flag("--overwrite", overwrite);
  words.flag("--json", json);
  words.flag("--skip_checksums", skip_checksums);
  return words.take();
}

}  // namespace dslaunch::launcher
