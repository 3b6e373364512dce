#include "hostfile/filter.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/split.hpp"
#include "hostfile/plain_name.hpp"

namespace dslaunch::hostfile {
namespace {

struct FilterNode {
  std::string name;
  std::set<int> slots;  // empty: all of them
  size_t column = 0;    // from 1
};

constexpr size_t kMaxProblems = 20;

struct ParsedFilter {
  std::vector<FilterNode> nodes;        // one per name, in the order of first mention
  std::map<std::string, size_t> index;  // of nodes, by plain name
  std::vector<std::string> problems;

  const FilterNode* find(const std::string& name) const {
    auto found = index.find(plain_name(name));
    return found == index.end() ? nullptr : &nodes[found->second];
  }
};

std::string at_column(size_t column, std::string_view what) {
  return fmt::format("column {}: {}", column, what);
}

void parse_slots(std::string_view list, size_t column, FilterNode& node, std::vector<std::string>& problems) {
  for (const auto& text : split(list, ',')) {
    if (auto slot = parse_int<int>(text, 0)) {
      node.slots.insert(*slot);
    } else {
      problems.push_back(at_column(column, fmt::format("'{}' is not a slot number", printable(text))));
    }
    column += text.size() + 1;
  }
}

// name[:slots] or [address][:slots]
FilterNode parse_node(std::string_view text, size_t column, std::vector<std::string>& problems) {
  FilterNode node;
  node.column = column;
  size_t close = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  size_t colon = close == std::string_view::npos ? text.find(':') : close + 1;
  if (close != std::string_view::npos) {
    node.name = text.substr(1, close - 1);
    if (colon < text.size() && text[colon] != ':') {
      problems.push_back(
          at_column(column + colon, fmt::format("unexpected '{}' after the address", printable(text.substr(colon)))));
      return node;
    }
  } else {
    node.name = text.substr(0, colon);
  }
  if (node.name.empty()) problems.push_back(at_column(column, "a host name is missing"));
  if (node.name.find_first_of(" \t") != std::string::npos) {
    problems.push_back(at_column(
        column,
        fmt::format("'{}': blanks are not allowed in a filter; separate hosts with '@'", printable(node.name))));
  }
  if (colon >= text.size()) return node;
  std::string_view slots = text.substr(colon + 1);
  if (slots.find(':') != std::string_view::npos) {
    problems.push_back(
        at_column(column, fmt::format("'{}': more than one ':' (write an IPv6 address in brackets)", printable(text))));
    return node;
  }
  parse_slots(slots, column + colon + 1, node, problems);
  return node;
}

ParsedFilter parse_filter(std::string_view filter) {
  ParsedFilter parsed;
  size_t column = 1;
  for (const auto& text : split(filter, '@')) {
    FilterNode node = parse_node(text, column, parsed.problems);
    auto [known, is_new] = parsed.index.try_emplace(plain_name(node.name), parsed.nodes.size());
    if (is_new) {
      parsed.nodes.push_back(std::move(node));
    } else {
      parsed.nodes[known->second].slots.insert(node.slots.begin(), node.slots.end());
    }
    column += text.size() + 1;
  }
  return parsed;
}

// "0-3", or "1,3" if there are gaps.
std::string describe_slots(const std::vector<int>& slots) {
  if (slots.size() > 2 && slots.back() - slots.front() + 1 == static_cast<int>(slots.size())) {
    return fmt::format("slots {}-{}", slots.front(), slots.back());
  }
  return fmt::format("{} {}", slots.size() == 1 ? "only slot" : "slots", fmt::join(slots, ","));
}

void check_against(const std::vector<Host>& hosts, ParsedFilter& parsed) {
  std::vector<std::string> names;
  std::map<std::string, const Host*> by_name;
  names.reserve(hosts.size());
  for (const auto& host : hosts) {
    names.push_back(host.name);
    by_name.emplace(plain_name(host.name), &host);
  }
  for (const auto& node : parsed.nodes) {
    if (parsed.problems.size() >= kMaxProblems) return;
    if (node.name.empty()) continue;
    auto found = by_name.find(plain_name(node.name));
    if (found == by_name.end()) {
      std::string hint = did_you_mean(node.name, names, 2);
      if (hint.empty() && names.size() <= 8) hint = fmt::format(" (there is {})", fmt::join(names, ", "));
      parsed.problems.push_back(at_column(node.column, fmt::format("no host '{}'{}", printable(node.name), hint)));
      continue;
    }
    const Host* host = found->second;
    for (int slot : node.slots) {
      if (parsed.problems.size() >= kMaxProblems) return;
      if (std::binary_search(host->slots.begin(), host->slots.end(), slot)) continue;
      parsed.problems.push_back(at_column(node.column, fmt::format("host '{}' has no slot {} (it has {})", host->name,
                                                                   slot, describe_slots(host->slots))));
    }
  }
}

std::vector<int> kept_slots(FilterKind kind, const FilterNode* node, const std::vector<int>& slots) {
  bool include = kind == FilterKind::kInclude;
  if (!node) return include ? std::vector<int>{} : slots;
  if (node->slots.empty()) return include ? slots : std::vector<int>{};
  std::vector<int> kept;
  for (int slot : slots) {
    if (node->slots.contains(slot) == include) kept.push_back(slot);
  }
  return kept;
}

}  // namespace

std::vector<Host> apply_filter(FilterKind kind, std::string_view filter, const std::vector<Host>& hosts) {
  std::string_view option = kind == FilterKind::kInclude ? "--include" : "--exclude";
  ParsedFilter parsed = parse_filter(filter);
  check_against(hosts, parsed);
  if (!parsed.problems.empty()) {
    if (parsed.problems.size() >= kMaxProblems) {
      parsed.problems.resize(kMaxProblems);
      parsed.problems.back() = "and more";
    }
    throw UserError(ExitCode::kBadInput, fmt::format("{} '{}' is not usable:\n  {}", option, printable(filter),
                                                     fmt::join(parsed.problems, "\n  ")));
  }
  std::vector<Host> left;
  for (const auto& host : hosts) {
    Host kept = host;
    kept.slots = kept_slots(kind, parsed.find(host.name), host.slots);
    if (!kept.slots.empty()) left.push_back(std::move(kept));
  }
  if (left.empty()) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} '{}' leaves no host and no slot to run on", option, printable(filter)));
  }
  return left;
}

std::vector<std::string> names_of_filter(std::string_view filter) {
  std::vector<std::string> names;
  for (auto& node : parse_filter(filter).nodes) names.push_back(std::move(node.name));
  return names;
}

int highest_slot_named(std::string_view filter) {
  int highest = -1;
  for (const auto& node : parse_filter(filter).nodes) {
    if (!node.slots.empty()) highest = std::max(highest, *node.slots.rbegin());
  }
  return highest;
}

}  // namespace dslaunch::hostfile
