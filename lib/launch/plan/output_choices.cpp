#include "launch/plan/output_choices.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"

namespace dslaunch::launch {
namespace {

[[noreturn]] void usage_error(std::string_view option, std::string_view text, std::string_view part) {
  throw UserError(ExitCode::kUsage,
                  fmt::format("{} {}: '{}' is invalid; write 0 (none), 1 (standard output), 2 (standard error) or "
                              "3 (both), or LOCAL_RANK:VALUE,... as in 0:3,12:1",
                              option, text, part));
}

}  // namespace

bool StreamChoice::has(int local_rank, Stream stream) const {
  auto own = by_local_rank.find(local_rank);
  int value = own == by_local_rank.end() ? all : own->second;
  return (value & (stream == Stream::kOut ? 1 : 2)) != 0;
}

StreamChoice parse_stream_choice(std::string_view option, std::string_view text) {
  StreamChoice choice;
  auto stream_value = [&](std::string_view part, std::string_view digits) {
    auto value = parse_int<int>(digits, 0);
    if (!value || *value > 3) usage_error(option, text, part);
    return *value;
  };
  if (text.find(':') == std::string_view::npos) {
    choice.all = stream_value(text, text);
    return choice;
  }
  for (std::string_view part : split(text, ',')) {
    size_t colon = part.find(':');
    auto rank = parse_int<int>(part.substr(0, std::min(colon, part.size())), 0);
    if (colon == std::string_view::npos || !rank) usage_error(option, text, part);
    int value = stream_value(part, part.substr(colon + 1));
    if (!choice.by_local_rank.emplace(*rank, value).second) usage_error(option, text, part);
  }
  return choice;
}

std::vector<int> parse_rank_list(std::string_view option, std::string_view text) {
  std::vector<int> ranks;
  for (std::string_view part : split(text, ',')) {
    auto rank = parse_int<int>(part, 0);
    if (!rank) {
      throw UserError(ExitCode::kUsage,
                      fmt::format("{} {}: '{}' is not a local rank; write them as in 0,3", option, text, part));
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

std::vector<std::string> idle_choices(const OutputChoices& choices, const std::set<int>& there) {
  std::vector<std::string> lines;
  auto look = [&](const char* option, int local_rank) {
    if (!there.contains(local_rank))
      lines.push_back(fmt::format("{}: no host has a local rank {}", option, local_rank));
  };
  for (const int local_rank : choices.local_ranks) look("--local_ranks_filter", local_rank);
  for (const auto& [local_rank, value] : choices.tee.by_local_rank) look("--tee", local_rank);
  for (const auto& [local_rank, value] : choices.redirects.by_local_rank) look("--redirects", local_rank);
  return lines;
}

}  // namespace dslaunch::launch
