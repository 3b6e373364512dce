// The options of `serve`. Plain data besides.
#pragma once
#include "command_line/option_table.hpp"

namespace dslaunch::command_line {

inline constexpr int64_t kDefaultServePort = 8000;
inline constexpr const char* kServeTokenVariable = "DSLAUNCH_SERVE_TOKEN";

class ServeOptions : public OptionTable {
 public:
  ServeOptions();
};

// Completes the source. Throws UserError(64) without a source, for two tokens, and for a port that is none.
void check_serve_options(ServeOptions& options);

}  // namespace dslaunch::command_line
