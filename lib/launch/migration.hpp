// Options of `deepspeed` and `torchrun`: what became of each here. The program's answers; docs/migrating.md says the
// same to readers.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

enum class Disposition { kHonoured, kRenamed, kNotNeeded, kRefused };

struct MigratedFlag {
  const char* flag;  // with '_', as "--num_gpus"
  const char* from;  // "deepspeed", "torchrun" or both
  Disposition disposition;
  const char* text;  // kHonoured: where it differs, may be empty; kRenamed: the name here; else the reason
};

const std::vector<MigratedFlag>& migrated_flags();

// What to tell a user who gave this option ('-' and '_' are equal, "=value" is ignored, -m is --module): "it is
// --num_gpus here". Empty when the flag is none of theirs, or is honoured.
std::optional<std::string> migration_answer(std::string_view option);

}  // namespace dslaunch::launch
