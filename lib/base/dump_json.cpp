#include "base/dump_json.hpp"

#include <nlohmann/json.hpp>

#include "base/format.hpp"

namespace dslaunch {
namespace {

// JSON allows DEL and C1 in strings; a terminal that shows the document obeys them.
std::string without_controls(std::string text) {
  const auto is_c1 = [&](size_t at) {
    return text[at] == '\xc2' && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xa0;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x7f' && !is_c1(at)) continue;
    const size_t length = text[at] == '\x7f' ? 1 : 2;
    text.replace(at, length, fmt::format("\\u{:04x}", static_cast<unsigned char>(text[at + length - 1])));
  }
  return text;
}

template <class Json>
std::string dump(const Json& document, int indent) {
  return without_controls(document.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

}  // namespace

std::string dump_json(const nlohmann::json& document, int indent) {
  return dump(document, indent);
}

std::string dump_json(const nlohmann::ordered_json& document, int indent) {
  return dump(document, indent);
}

}  // namespace dslaunch
