// A stream of tokens, in parts, cut into samples for language models.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/array_file.hpp"
#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

// The parts form one stream, one after the other. Sample i of length L: input_ids = tokens[iL, iL + L), labels = the
// same shifted by one, both int64. Throws UserError(65) when there are fewer than L + 1 tokens.
std::unique_ptr<SampleSource> make_token_samples(std::vector<FileArray> parts, int64_t seq_len);

}  // namespace dslaunch::runtime
