// The decoders of tokenizer.json as steps that pieces run through, one after another. One thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/text/json_node.hpp"

namespace dslaunch::runtime::text {

class DecodeStep {
 public:
  using Emit = std::function<void(std::string)>;

  virtual ~DecodeStep() = default;
  // Calls `emit` for pieces that later ones cannot change.
  virtual void push(std::string piece, const Emit& emit) = 0;
  // The end of the text: emits the rest. Another text needs another step.
  virtual void finish(const Emit&) {}
};

using DecodeSteps = std::vector<std::unique_ptr<DecodeStep>>;
// Makes the steps for one text.
using DecodeStepFactory = std::function<DecodeSteps()>;

// Of null: pieces with a space in between. Throws UserError(65) for a kind that is not supported.
DecodeStepFactory read_decoder(const JsonNode& node);

// The byte of a piece such as "<0xE2>"; -1: another kind of piece.
int byte_of_piece(std::string_view piece);

}  // namespace dslaunch::runtime::text
