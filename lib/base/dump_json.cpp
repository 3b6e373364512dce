#include "base/dump_json.hpp"

#include <nlohmann/json.hpp>

namespace dslaunch {
namespace {

template <class Json>
std::string dump(const Json& document, int indent) {
  return document.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

std::string dump_json(const nlohmann::json& document, int indent) {
  return dump(document, indent);
}

std::string dump_json(const nlohmann::ordered_json& document, int indent) {
  return dump(document, indent);
}

}  // namespace dslaunch
