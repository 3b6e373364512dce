// Words as a shell would have to be given them: for messages and dry runs only, nothing of ours goes through a shell.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launch {

std::string shell_word(const std::string& word);
std::string shell_words(const std::vector<std::string>& words);

}  // namespace dslaunch::launch
