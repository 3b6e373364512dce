// Words as a POSIX shell has to be given them: every byte but NUL comes out as it went in. Plain words stay as they
// are.
#pragma once
#include <string>
#include <vector>

namespace dslaunch {

std::string shell_word(const std::string& word);
std::string shell_words(const std::vector<std::string>& words);

}  // namespace dslaunch
