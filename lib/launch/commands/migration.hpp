// Options of `deepspeed` and `torchrun`, and their counterparts here. The program's answers; docs/migrating.md
// documents the same.
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
  const char* text;  // kHonoured: how it differs, may be empty; kRenamed: the name here; else the reason
};

const std::vector<MigratedFlag>& migrated_flags();

// Whether such an option is accepted without effect; and whether it has a value, for an option of which that is true.
bool is_not_needed(std::string_view option);
bool takes_value(std::string_view option);

// The hint for a user who gave this option ('-' and '_' are equal, "=value" is ignored, -m is --module): "it is
// --num_gpus here". Empty when neither program has the option, or when it is honoured.
std::optional<std::string> migration_answer(std::string_view option);

}  // namespace dslaunch::launch
