// The number of training samples, as far as the launcher can see it without reading the data: it stands in the headers
// of safetensors and npy files, and follows from the size of a token stream.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::launch {

// Paths are relative to `cwd`. Empty: in another format, or a header that only a rank can judge.
std::optional<int64_t> count_samples(const config::Data& data, const std::string& cwd);

// Throws UserError(65) if the data is known to have fewer samples than a global batch, and the rest is dropped.
void check_enough_samples(const config::JobConfig& config, const std::string& cwd, int data_ranks);

}  // namespace dslaunch::launch
