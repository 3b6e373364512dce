#include "launch/supervisor/stack_request.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

Json group_json(const StackGroup& group, const std::vector<RankRecord>& records) {
  Json ranks = Json::array(), notes = Json::array();
  for (const auto& stack : group.ranks) {
    ranks.push_back(
        {{"rank", stack.rank}, {"host", records[static_cast<size_t>(stack.rank)].host}, {"pid", stack.pid}});
    const bool is_known = std::find(notes.begin(), notes.end(), stack.note) != notes.end();
    if (!stack.note.empty() && !is_known) notes.push_back(stack.note);
  }
  return {{"ranks", ranks}, {"source", group.ranks[0].source}, {"notes", notes}, {"text", group.ranks[0].text}};
}

}  // namespace

void StackRequest::take(const std::vector<PlannedRank>& ranks, const RankStacks& stacks) {
  for (const auto& planned : ranks) {
    if (awaited_.erase(planned.rank) == 0) continue;
    const auto found = std::find_if(stacks.stacks.begin(), stacks.stacks.end(),
                                    [&](const RankStack& each) { return each.rank == planned.rank; });
    if (found != stacks.stacks.end()) {
      stacks_.push_back(*found);
    } else {
      missing_[planned.rank] = stacks.error.empty() ? "it has just ended" : stacks.error;
    }
  }
}

std::string StackRequest::document(const std::vector<RankRecord>& records) const {
  auto missing = missing_;
  for (int rank : awaited_) {
    missing[rank] = fmt::format(
        "the agent on {} did not answer within {} s: it is stopped, or its host or the network "
        "does not answer",
        records[static_cast<size_t>(rank)].host, kStacksTimeout / 1s);
  }
  Json groups = Json::array(), absent = Json::array();
  for (const auto& group : group_stacks(stacks_)) groups.push_back(group_json(group, records));
  for (const auto& [rank, reason] : missing) {
    const RankRecord& record = records[static_cast<size_t>(rank)];
    absent.push_back({{"rank", rank}, {"host", record.host}, {"ended", record.cause.has_value()}, {"reason", reason}});
  }
  return dump_json(Json{{"stacks", groups}, {"missing", absent}});
}

}  // namespace dslaunch::launch
