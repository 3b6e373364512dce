// What a model that tools/export has taken from Hugging Face says of its texts: the tokens that begin and end them.
// Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/state/hugging_face_facts.hpp"

namespace dslaunch::runtime::engine::inference {

struct GenerationConfig {
  std::set<int64_t> ends;                // eos_token_id
  std::optional<int64_t> decoder_start;  // of an encoder and a decoder
  std::optional<int64_t> forced_first, forced_last;
  // How labels become what the decoder reads when such a model is trained: each moves to the next position, ignored
  // ones become `pad`, and the first one is `decoder_start`; or the last label that counts (mBART, PLBart).
  bool begins_with_last_label = false;
  int64_t pad = 0;
  std::vector<std::string> ignored;  // settings that would change a text and that are not applied
};

// generation_config where it has an entry, else config. Throws UserError(65), naming `path`, for damaged JSON.
GenerationConfig read_generation_config(const HuggingFaceFacts& facts, const std::string& path);

}  // namespace dslaunch::runtime::engine::inference
