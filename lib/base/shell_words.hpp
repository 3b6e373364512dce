// Quotes words for a POSIX shell: the shell reproduces every byte but NUL. Plain words stay unquoted.
#pragma once
#include <string>
#include <vector>

namespace dslaunch {

std::string shell_word(const std::string& word);
std::string shell_words(const std::vector<std::string>& words);

}  // namespace dslaunch
