// Whole weights from a sharded checkpoint: safetensors, a TorchScript file, or a plain state-dict.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "command_options.hpp"
#include "commands.hpp"
#include "runtime/checkpoint/consolidate.hpp"
#include "unfinished_files.hpp"

namespace dslaunch::worker {
namespace {

std::optional<at::ScalarType> dtype_option(const CommandOptions& options) {
  const auto name = options.value("dtype");
  if (!name) return std::nullopt;
  if (*name == "fp32") return at::kFloat;
  if (*name == "bf16") return at::kBFloat16;
  if (*name == "fp16") return at::kHalf;
  throw UserError(ExitCode::kUsage, fmt::format("--dtype {}: fp32, bf16 or fp16", *name));
}

void print_json(const std::string& checkpoint, const std::vector<std::string>& files) {
  const nlohmann::ordered_json json{{"source", checkpoint}, {"files", files}};
  std::puts(dump_json(json, 1).c_str());
}

}  // namespace

const CommandSpec& consolidate_spec() {
  static const CommandSpec spec{"consolidate",
                                {"CHECKPOINT", "OUT.safetensors|OUT.pt"},
                                {{"state_dict"},
                                 {"max_memory", "SIZE"},
                                 {"max_shard_size", "SIZE"},
                                 {"exclude_frozen_parameters"},
                                 {"dtype", "fp32|bf16|fp16"},
                                 {"json"}}};
  return spec;
}

int consolidate_command(const std::vector<std::string>& arguments) {
  const CommandOptions options(arguments, consolidate_spec());
  runtime::ConsolidateOptions what;
  what.checkpoint = options.operand(0);
  what.out = options.operand(1);
  what.state_dict = options.has("state_dict");
  what.max_memory_bytes = options.bytes("max_memory").value_or(what.max_memory_bytes);
  what.max_shard_bytes = options.bytes("max_shard_size").value_or(what.max_shard_bytes);
  what.exclude_frozen = options.has("exclude_frozen_parameters");
  what.dtype = dtype_option(options);
  what.before_writing = remove_when_ended;
  const auto files = runtime::consolidate(what);
  for (const auto& path : files) log::info("wrote {}", path);
  if (options.has("json")) print_json(what.checkpoint, files);
  return 0;
}

}  // namespace dslaunch::worker
