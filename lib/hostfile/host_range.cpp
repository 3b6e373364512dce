#include "hostfile/host_range.hpp"

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/split.hpp"

namespace dslaunch::hostfile {
namespace {

using Names = std::vector<std::string>;

Failure<RangeError> failure(std::string message, size_t offset) {
  return {{std::move(message), offset}};
}

Result<uint64_t, RangeError> parse_bound(std::string_view text, size_t offset) {
  const auto value = parse_int<uint64_t>(text);
  if (!value || text.size() > 9) {
    return failure(fmt::format("'{}' is not a number of at most 9 digits in a range", printable(text)), offset);
  }
  return *value;
}

// "01-03" or "7" -> "01" "02" "03" or "7".
Result<void, RangeError> append_item(std::string_view item, size_t offset, Names& out) {
  const size_t dash = item.find('-');
  const std::string_view low_text = item.substr(0, dash);
  const auto low = parse_bound(low_text, offset);
  if (!low.ok()) return Failure{low.error()};
  const auto high = dash == item.npos ? low : parse_bound(item.substr(dash + 1), offset + dash + 1);
  if (!high.ok()) return Failure{high.error()};
  if (*high < *low) return failure(fmt::format("range '{}' is descending", printable(item)), offset);
  if (*high - *low >= kMaxExpandedNames - out.size()) {
    return failure(fmt::format("range '{}' expands to more than {} hosts", printable(item), kMaxExpandedNames), offset);
  }
  for (uint64_t n = *low; n <= *high; ++n) out.push_back(fmt::format("{:0{}}", n, low_text.size()));
  return {};
}

// The items of one bracket group; `list` begins at `offset`.
Result<Names, RangeError> expand_group(std::string_view list, size_t offset) {
  Names out;
  for (const auto& item : split(list, ',')) {
    if (const auto added = append_item(item, offset, out); !added.ok()) return Failure{added.error()};
    offset += item.size() + 1;
  }
  return out;
}

// The text next to a bracket is copied into every name.
Result<void, RangeError> check_size(size_t size, size_t offset) {
  if (size <= kMaxHostName) return {};
  return failure(fmt::format("more than {} characters around a range: too long for a host name", kMaxHostName), offset);
}

Result<Names, RangeError> multiply(const Names& names, const Names& tails, size_t offset) {
  if (const auto size = check_size(names.front().size(), offset); !size.ok()) return Failure{size.error()};
  if (names.size() * tails.size() > kMaxExpandedNames) {
    return failure(fmt::format("names more than {} hosts", kMaxExpandedNames), offset);
  }
  Names product;
  product.reserve(names.size() * tails.size());
  for (const auto& name : names) {
    for (const auto& tail : tails) product.push_back(name + tail);
  }
  return product;
}

}  // namespace

Result<Names, RangeError> expand_host_range(std::string_view text) {
  Names names{""};
  size_t at = 0;
  while (at < text.size()) {
    const size_t bracket = text.find_first_of("[]", at);
    const std::string_view plain = text.substr(at, bracket == text.npos ? bracket : bracket - at);
    if (at > 0) {
      if (const auto size = check_size(plain.size(), at); !size.ok()) return Failure{size.error()};
    }
    for (auto& name : names) name += plain;
    if (bracket == text.npos) break;
    if (text[bracket] == ']') return failure("']' without a '[' before it", bracket);
    const size_t close = text.find(']', bracket);
    if (close == text.npos) return failure("'[' is never closed", bracket);
    auto group = expand_group(text.substr(bracket + 1, close - bracket - 1), bracket + 1);
    if (!group.ok()) return group;
    auto product = multiply(names, *group, bracket);
    if (!product.ok()) return product;
    names = *std::move(product);
    at = close + 1;
  }
  return names;
}

}  // namespace dslaunch::hostfile
