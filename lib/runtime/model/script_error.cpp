#include "runtime/model/script_error.hpp"

namespace dslaunch::runtime {

std::string cause_in(std::string text) {
  const std::string place = "<--- HERE\n", of_operator = "RuntimeError: ", raised = "\nbuiltins.";
  const auto last_place = text.rfind(place);
  const size_t begin = last_place == std::string::npos ? 0 : last_place + place.size() - 1;
  if (const auto at = text.find(of_operator, begin); at != std::string::npos) {
    text = text.substr(at + of_operator.size());
  } else if (const auto own = text.find(raised, begin); own != std::string::npos) {
    text = text.substr(own + raised.size());
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace dslaunch::runtime
