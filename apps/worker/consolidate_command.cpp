// Whole weights from a sharded checkpoint: safetensors, a TorchScript file, a plain state-dict, or a directory of
// Hugging Face.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "runtime/checkpoint/consolidate.hpp"
#include "runtime/checkpoint/hugging_face/write_model.hpp"
#include "unfinished_files.hpp"

namespace dslaunch::worker {
namespace {

// "500MB", "2GB": decimal units KB, MB, GB, TB, as Hugging Face counts them; a unit is required.
std::optional<uint64_t> parse_size(const std::string& text) {
  static const std::pair<const char*, double> kUnits[] = {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  char* end = nullptr;
  const double count = std::strtod(text.c_str(), &end);
  std::string unit = end;
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const auto& [known, size] : kUnits) {
    if (unit == known && end != text.c_str() && count > 0 && count * size >= 1 && count * size < 1e18) {
      return static_cast<uint64_t>(count * size);
    }
  }
  return std::nullopt;
}

uint64_t read_size(const char* option, const std::string& text) {
  const auto size = parse_size(text);
  if (!size)
    command_line::usage_error(fmt::format("{} needs a size with a unit, as 500MB or 2GB, but got '{}'", option, text));
  return *size;
}

at::ScalarType read_dtype(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  command_line::usage_error(fmt::format("--dtype must be fp32, bf16 or fp16, not {}", name));
}

void print_json(const std::string& source, const runtime::WrittenWeights& written) {
  const nlohmann::ordered_json json{
      {"source", source}, {"checkpoint", written.checkpoint}, {"step", written.step}, {"files", written.files}};
  std::puts(dump_json(json, 1).c_str());
}

struct HuggingFaceArguments {
  std::optional<std::string> out, source;
  bool merge_lora = false;
};

// Which of the two forms is meant, and that no option of the other form is there.
void check_form(const HuggingFaceArguments& hugging_face, const runtime::ConsolidateOptions& what) {
  if (!hugging_face.out) {
    if (what.out.empty()) command_line::usage_error("consolidate needs OUT.safetensors, OUT.pt or --hf OUT_DIR");
    if (hugging_face.source) command_line::usage_error("--hf_source goes with --hf OUT_DIR");
    if (hugging_face.merge_lora) command_line::usage_error("--merge_lora goes with --hf OUT_DIR");
    return;
  }
  if (hugging_face.out->empty()) command_line::usage_error("--hf needs a directory");
  if (!what.out.empty()) {
    command_line::usage_error(fmt::format("consolidate writes either '{}' or --hf '{}'", what.out, *hugging_face.out));
  }
  if (what.state_dict) command_line::usage_error("--state_dict does not go with --hf, which writes safetensors");
  if (what.exclude_frozen) {
    command_line::usage_error(
        "--exclude_frozen_parameters does not go with --hf, which writes complete models; of a model with an adapter "
        "--hf writes the adapter alone");
  }
}

runtime::WrittenWeights write_hugging_face(const HuggingFaceArguments& arguments,
                                           const runtime::ConsolidateOptions& what) {
  runtime::hugging_face::WriteOptions options;
  options.checkpoint = what.checkpoint;
  options.out = *arguments.out;
  while (options.out.size() > 1 && options.out.back() == '/') options.out.pop_back();
  options.source = arguments.source;
  options.merge_lora = arguments.merge_lora;
  options.dtype = what.dtype.value_or(at::kFloat);
  options.max_memory_bytes = what.max_memory_bytes;
  if (what.max_shard_bytes > 0) options.max_shard_bytes = what.max_shard_bytes;
  options.before_writing = what.before_writing;
  return runtime::hugging_face::write_model(options);
}

}  // namespace

int consolidate_command(const std::vector<std::string>& arguments) {
  runtime::ConsolidateOptions what;
  std::optional<std::string> max_memory, max_shard_size, dtype;
  HuggingFaceArguments hugging_face;
  bool json = false;
  CommandLine line("consolidate", "consolidate CHECKPOINT OUT|--hf OUT_DIR [options]", "consolidate runs/a model.pt");
  line.operand("CHECKPOINT", what.checkpoint, "a run directory, a directory of checkpoints, or one checkpoint");
  line.operand("OUT", what.out, "OUT.safetensors, OUT.pt or OUT.bin")->required(false);
  line.text("--hf", hugging_face.out, "a directory that from_pretrained of transformers or peft loads", "OUT_DIR");
  line.text("--hf_source", hugging_face.source, "where its tokenizer's files are; without it where the model came from",
            "DIR");
  line.flag("--merge_lora", hugging_face.merge_lora, "with --hf: the whole model, its adapter added to the weights");
  line.flag("--state_dict", what.state_dict, "a .pt with names and tensors only, as a .bin is");
  line.text("--max_memory", max_memory, "for weights, beside the program's own 0.2 GB (1GB)", "SIZE");
  line.text("--max_shard_size", max_shard_size, "a larger file becomes several, as 5GB (with --hf 5GB)", "SIZE");
  line.flag("--exclude_frozen_parameters", what.exclude_frozen, "only what is trained");
  line.text("--dtype", dtype, "of floating-point tensors; without it the model's own, with --hf fp32",
            "fp32|bf16|fp16");
  line.flag("--json", json, "one document on standard output");
  if (!line.parse(arguments)) return 0;
  if (max_memory) what.max_memory_bytes = read_size("--max_memory", *max_memory);
  if (max_shard_size) what.max_shard_bytes = read_size("--max_shard_size", *max_shard_size);
  if (dtype) what.dtype = read_dtype(*dtype);
  check_form(hugging_face, what);
  what.before_writing = remove_when_ended;
  const auto written = hugging_face.out ? write_hugging_face(hugging_face, what) : runtime::consolidate(what);
  for (const auto& path : written.files) log::info("wrote {}", path);
  log::info("the weights are those of step {}, in {}", written.step, written.checkpoint);
  if (json) print_json(what.checkpoint, written);
  return 0;
}

}  // namespace dslaunch::worker
