// The command of another launcher (`torchrun --nproc_per_node 2 train.py`, `accelerate launch ...`, `srun ...`), or
// words of it that were given to dslaunch, as the line of `dslaunch exec` that starts the same program. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::launcher {

struct ExecLine {
  std::vector<std::string> options;   // of exec
  std::vector<std::string> program;   // with its arguments
  std::string file;                   // the word that named it; empty: a module of Python
  std::vector<std::string> left_out;  // options that exec does not have, with the reason

  // "'dslaunch exec OPTIONS -- PROGRAM'?" and what was left out: what follows "did you mean ".
  std::string text() const;
};

// Whether a word names a program of Python or a script, or is the option for a module.
bool may_be_program(const std::string& word);

// Empty: `words` start no program, or an option in front of it is one that no launcher has: a typing error.
std::optional<ExecLine> exec_line(const std::vector<std::string>& words);

}  // namespace dslaunch::launcher
