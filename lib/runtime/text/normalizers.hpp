// The normalizers of tokenizer.json: what becomes of a text before it is split. One thread.
#pragma once
#include <memory>
#include <string>

#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is UTF-8.
  virtual std::string apply(std::string text) const = 0;
};

// Of null: changes nothing. Throws UserError(65) for a kind that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node);

}  // namespace dslaunch::runtime::text
