// The options of `infer`. Plain data besides.
#pragma once
#include "command_line/option_table.hpp"

namespace dslaunch::command_line {

class InferOptions : public OptionTable {
 public:
  InferOptions();
};

// Completes the source. Throws UserError(64) for options that exclude each other, and without a source, or anything to
// do with it.
void check_infer_options(InferOptions& options);

}  // namespace dslaunch::command_line
