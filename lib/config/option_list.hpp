// Lists as an option of the command line has them. Any thread; pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

// "a, b" without the blanks around the words.
std::vector<std::string> words_between_commas(const std::string& text);

// ["a", "b"], or [a, b], which is what a shell makes of it. Empty: the text is no list of texts.
std::optional<std::vector<std::string>> list_in_option(const std::string& text);

}  // namespace dslaunch::config
