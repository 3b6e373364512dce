#include "runtime/model/torchscript/file/script_error.hpp"

#include <c10/util/Exception.h>

namespace dslaunch::runtime::model::file {
namespace {

// The rest of the line from the first character of `text` at or after `begin` that is not a space.
std::string line_at(const std::string& text, size_t begin) {
  begin = text.find_first_not_of(" \n", begin);
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

std::string cause_in(std::string text) {
  const std::string marker = "<--- HERE\n", of_operator = "RuntimeError: ", raised = "\nbuiltins.";
  const auto last_marker = text.rfind(marker);
  const size_t begin = last_marker == std::string::npos ? 0 : last_marker + marker.size() - 1;
  if (const auto at = text.find(of_operator, begin); at != std::string::npos) {
    text = text.substr(at + of_operator.size());
  } else if (const auto own = text.find(raised, begin); own != std::string::npos) {
    text = text.substr(own + raised.size());
  }
  return line_at(text, 0);
}

}  // namespace

std::string cause_of(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  return cause_in(of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what());
}

std::string parse_error_in(const std::string& text) {
  const auto mark = text.find("~~~");
  const auto end_of_code = mark == std::string::npos ? mark : text.rfind('\n', mark);
  if (end_of_code == std::string::npos || end_of_code == 0) return line_at(text, 0);
  return line_at(text, 0) + " " + line_at(text, text.rfind('\n', end_of_code - 1) + 1);
}

}  // namespace dslaunch::runtime::model::file
