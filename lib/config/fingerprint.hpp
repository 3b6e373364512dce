// Whether two runs have the same job: a hash of the settings that were given. Pure.
#pragma once
#include <cstdint>

#include "config/load.hpp"

namespace dslaunch::config {

// Equal for two configs with the same settings, in any order and from any source (a file, --set, an option), however
// many ranks they are solved for. The length of the run does not count: train.steps and train.epochs.
uint64_t fingerprint(const LoadResult& loaded);

}  // namespace dslaunch::config
