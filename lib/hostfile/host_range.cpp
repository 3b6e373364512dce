#include "hostfile/host_range.hpp"

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/split.hpp"

namespace dslaunch::hostfile {
namespace {

struct Failure {
  std::string message;
  size_t offset;
};

uint64_t parse_bound(std::string_view text, size_t offset) {
  const auto value = parse_int<uint64_t>(text);
  if (!value || text.size() > 9) {
    throw Failure{fmt::format("'{}' is not a number of at most 9 digits in a range", printable(text)), offset};
  }
  return *value;
}

// "01-03" or "7" -> "01" "02" "03" or "7".
void append_item(std::string_view item, size_t offset, std::vector<std::string>& out) {
  size_t dash = item.find('-');
  std::string_view low_text = item.substr(0, dash);
  uint64_t low = parse_bound(low_text, offset);
  uint64_t high = low;
  if (dash != std::string_view::npos) high = parse_bound(item.substr(dash + 1), offset + dash + 1);
  if (high < low) throw Failure{fmt::format("range '{}' runs backwards", printable(item)), offset};
  if (high - low >= kMaxExpandedNames - out.size()) {
    throw Failure{fmt::format("with range '{}' there are more than {} hosts", printable(item), kMaxExpandedNames),
                  offset};
  }
  for (uint64_t n = low; n <= high; ++n) out.push_back(fmt::format("{:0{}}", n, low_text.size()));
}

// The items of one bracket group; `list` begins at `offset`.
std::vector<std::string> expand_group(std::string_view list, size_t offset) {
  std::vector<std::string> out;
  for (const auto& item : split(list, ',')) {
    append_item(item, offset, out);
    offset += item.size() + 1;
  }
  return out;
}

// The text next to a bracket is copied into every name.
void require_fitting(size_t size, size_t offset) {
  if (size > kMaxHostName) {
    throw Failure{fmt::format("more than {} characters beside a range: no host's name is that long", kMaxHostName),
                  offset};
  }
}

void multiply(std::vector<std::string>& names, const std::vector<std::string>& tails, size_t offset) {
  require_fitting(names.front().size(), offset);
  if (names.size() * tails.size() > kMaxExpandedNames) {
    throw Failure{fmt::format("names more than {} hosts", kMaxExpandedNames), offset};
  }
  std::vector<std::string> product;
  product.reserve(names.size() * tails.size());
  for (const auto& name : names) {
    for (const auto& tail : tails) product.push_back(name + tail);
  }
  names = std::move(product);
}

std::vector<std::string> expand(std::string_view text) {
  std::vector<std::string> names{""};
  size_t at = 0;
  while (at < text.size()) {
    size_t bracket = text.find_first_of("[]", at);
    std::string_view plain = text.substr(at, bracket == std::string_view::npos ? bracket : bracket - at);
    if (at > 0) require_fitting(plain.size(), at);
    for (auto& name : names) name += plain;
    if (bracket == std::string_view::npos) break;
    if (text[bracket] == ']') throw Failure{"']' without a '[' before it", bracket};
    size_t close = text.find(']', bracket);
    if (close == std::string_view::npos) throw Failure{"'[' is never closed", bracket};
    multiply(names, expand_group(text.substr(bracket + 1, close - bracket - 1), bracket + 1), bracket);
    at = close + 1;
  }
  return names;
}

}  // namespace

RangeExpansion expand_host_range(std::string_view text) {
  try {
    return {expand(text), {}, 0};
  } catch (const Failure& failure) {
    return {{}, failure.message, failure.offset};
  }
}

}  // namespace dslaunch::hostfile
