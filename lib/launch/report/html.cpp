#include "launch/report/html.hpp"

#include "base/printable.hpp"

namespace dslaunch::launch {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char byte : printable(text, "\t\n")) {
    switch (byte) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += byte;
    }
  }
  return out;
}

std::string escape_script_json(std::string_view json) {
  std::string out;
  for (const char byte : json) out += byte == '<' ? std::string("\\u003c") : std::string(1, byte);
  return out;
}

}  // namespace dslaunch::launch
