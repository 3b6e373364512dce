// The options of a command that dslaunch checks and passes on, and dsworker reads: declared once for both programs, as
// rows of a table. Plain data besides.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line/command_line.hpp"

namespace dslaunch::command_line {

struct OptionRow {
  enum class Kind { kSwitch, kText, kTexts, kNumber, kReal, kSize, kDuration };

  std::string_view name;
  Kind kind = Kind::kText;
  std::string_view value_name;  // empty: the choices
  std::string_view help;
  double least = 0;                              // of a number
  std::array<std::string_view, 3> choices = {};  // of a text; empty: any
  std::string_view group = {};                   // the heading of this option and those after it
};

// The options that were given, with their values as text. A name without a row is a programming error.
class OptionTable {
 public:
  // What to run: MODEL.pt, a checkpoint, a run directory; empty: not given.
  std::string source;

  explicit OptionTable(std::vector<OptionRow> rows) : rows_(std::move(rows)) {}

  bool has(std::string_view name) const;
  // Empty when the option was not given.
  std::string text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  int64_t number(std::string_view name, int64_t otherwise) const;
  double real(std::string_view name, double otherwise) const;
  int64_t bytes(std::string_view name, int64_t otherwise) const;
  std::chrono::milliseconds duration(std::string_view name, std::chrono::milliseconds otherwise) const;

  // The words of a command line that give the same options.
  std::vector<std::string> words() const;

  // `line` keeps a reference to this table.
  void declare(CommandLine& line);
  // Completes `source`. Throws UserError(64) when there is none (`question`: what to say then), or two.
  void require_source(const std::string& command, const std::string& question);

 private:
  const OptionRow& row_of(std::string_view name) const;
  void declare(CommandLine& line, const OptionRow& row);

  const std::vector<OptionRow> rows_;
  std::string checkpoint_;                                       // the source by its other name
  std::map<std::string_view, std::vector<std::string>> values_;  // by the row's name
};

// Options of the model, which every command with one has.
const std::vector<OptionRow>& model_option_rows();
// Throws UserError(64) for those that exclude each other.
void check_model_options(const OptionTable& options);

}  // namespace dslaunch::command_line
