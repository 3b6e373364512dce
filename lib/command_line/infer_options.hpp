// The options of `infer`, declared once for both programs: dslaunch checks them and passes them on, dsworker reads
// them. Plain data besides.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line/command_line.hpp"

namespace dslaunch::command_line {

// The options that were given, with their values as text. A name without a row is a programming error.
class InferOptions {
 public:
  // What to run: MODEL.pt, a checkpoint, a run directory; empty: not given.
  std::string source;

  bool has(std::string_view name) const;
  // Empty when the option was not given.
  std::string text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  int64_t number(std::string_view name, int64_t otherwise) const;
  double real(std::string_view name, double otherwise) const;

  // The words of a command line that give the same options.
  std::vector<std::string> words() const;

 private:
  friend void add_infer_options(CommandLine& line, InferOptions& options);
  friend void check_infer_options(InferOptions& options);

  std::string checkpoint_;                                       // the source by its other name
  std::map<std::string_view, std::vector<std::string>> values_;  // by the row's name
};

// Declares them; `line` keeps a reference to `options`.
void add_infer_options(CommandLine& line, InferOptions& options);

// Completes `source`. Throws UserError(64) for options that exclude each other, and without a source, or anything to
// do with it.
void check_infer_options(InferOptions& options);

}  // namespace dslaunch::command_line
