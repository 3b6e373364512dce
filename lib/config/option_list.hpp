// Parses lists in options of the command line. Any thread; pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

// The words of "a, b" without surrounding blanks.
std::vector<std::string> words_between_commas(const std::string& text);

// ["a", "b"], or [a, b] as the shell leaves it after removing quotes. Empty: the text is not a list of texts.
std::optional<std::vector<std::string>> list_in_option(const std::string& text);

}  // namespace dslaunch::config
