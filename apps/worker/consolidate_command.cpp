// Whole weights from a sharded checkpoint: safetensors, a TorchScript file, or a plain state-dict.
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

void print_json(const std::string& checkpoint, const std::vector<std::string>& files) {
  const nlohmann::ordered_json json{{"source", checkpoint}, {"files", files}};
  std::puts(dump_json(json, 1).c_str());
}

}  // namespace

int consolidate_command(const std::vector<std::string>& arguments) {
  runtime::ConsolidateOptions what;
  std::optional<std::string> max_memory, max_shard_size, dtype;
  bool json = false;
  CommandLine line("consolidate", "consolidate CHECKPOINT OUT [options]", "consolidate runs/a/checkpoints model.pt");
  line.operand("CHECKPOINT", what.checkpoint, "a checkpoint, or the directory that holds them");
  line.operand("OUT", what.out, "OUT.safetensors or OUT.pt");
  line.flag("--state_dict", what.state_dict, "a .pt with names and tensors only");
  line.text("--max_memory", max_memory, "for weights, beside the program's own 0.2 GB (1GB)", "SIZE");
  line.text("--max_shard_size", max_shard_size, "a larger file becomes several, as 5GB", "SIZE");
  line.flag("--exclude_frozen_parameters", what.exclude_frozen, "only what is trained");
  line.text("--dtype", dtype, "of floating-point tensors; without it the model's own", "fp32|bf16|fp16");
  line.flag("--json", json, "one document on standard output");
  if (!line.parse(arguments)) return 0;
  if (max_memory) what.max_memory_bytes = read_size("--max_memory", *max_memory);
  if (max_shard_size) what.max_shard_bytes = read_size("--max_shard_size", *max_shard_size);
  if (dtype) what.dtype = read_dtype(*dtype);
  what.before_writing = remove_when_ended;
  const auto files = runtime::consolidate(what);
  for (const auto& path : files) log::info("wrote {}", path);
  if (json) print_json(what.checkpoint, files);
  return 0;
}

}  // namespace dslaunch::worker
