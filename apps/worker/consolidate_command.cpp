// Whole weights from a sharded checkpoint: safetensors, a TorchScript file, or a plain state-dict.
#include "base/log.hpp"
#include "command_options.hpp"
#include "commands.hpp"
#include "runtime/checkpoint/consolidate.hpp"

namespace dslaunch::worker {

int consolidate_command(const std::vector<std::string>& arguments) {
  const CommandOptions options(arguments, {{"state_dict", false}}, {"CHECKPOINT", "OUT"});
  runtime::consolidate(options.operand(0), options.operand(1), options.has("state_dict"));
  log::info("wrote {}", options.operand(1));
  return 0;
}

}  // namespace dslaunch::worker
