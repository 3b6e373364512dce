// `--config -` and `dslaunch config check -`: a config from standard input.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

// The words with the text of standard input in place of a "-" that stands for a config; as they are if there is none.
// So every later reader, on every host and at every restart, has the text itself. Throws UserError(66) when it cannot
// be read or is empty, 65 when it is too long for a word.
std::vector<std::string> with_config_from_input(std::vector<std::string> words);

}  // namespace dslaunch::launcher
