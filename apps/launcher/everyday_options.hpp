// Options that people expect of a training program, and what says the same here: keys of the config, or options under
// another name. Pure.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

// Throws UserError(64) with the words to use instead, if an option among `leftover`, which the command line does not
// have, is such an option or the name of a key of the config. `words`: the command line, for the option's value.
void answer_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover);
// The same for `infer`, of the options of transformers' generate() and of other programs that write texts.
void answer_generation_wish(const std::vector<std::string>& words, const std::vector<std::string>& leftover);

}  // namespace dslaunch::launcher
