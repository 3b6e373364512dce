#include "base/environment.hpp"

#include <unistd.h>

#include <string_view>

namespace dslaunch {

std::map<std::string, std::string> environment_of_this_process() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

}  // namespace dslaunch
