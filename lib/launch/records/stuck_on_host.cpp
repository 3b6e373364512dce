#include "launch/records/stuck_on_host.hpp"

#include <nlohmann/json.hpp>

#include "base/format.hpp"

namespace dslaunch::launch {

using Json = nlohmann::ordered_json;

std::string describe(const StuckOnHost& stuck) {
  const std::string who = stuck.rank >= 0 ? fmt::format("rank {} on {}", stuck.rank, stuck.host) : stuck.host;
  return fmt::format("{}: {}", who, spawn::describe(stuck.process));
}

Json stuck_to_json(const spawn::StuckProcess& process) {
  return {{"state", std::string(1, process.state)},
          {"wait_channel", process.wait_channel.empty() ? Json(nullptr) : Json(process.wait_channel)}};
}

Json stuck_to_json(const std::vector<StuckOnHost>& all) {
  Json list = Json::array();
  for (const auto& [rank, host, is_here, process] : all) {
    Json json = {{"rank", rank >= 0 ? Json(rank) : Json(nullptr)},
                 {"host", host},
                 {"here", is_here},
                 {"pid", process.pid},
                 {"start_ticks", process.start_ticks}};
    json.update(stuck_to_json(process));
    list.push_back(std::move(json));
  }
  return list;
}

std::vector<StuckOnHost> stuck_from_json(const Json& list) {
  std::vector<StuckOnHost> all;
  for (const Json& json : list) {
    const Json& rank = json.at("rank");
    const Json& channel = json.at("wait_channel");
    const auto state = json.at("state").get<std::string>();
    all.push_back({rank.is_null() ? -1 : rank.get<int>(),
                   json.at("host").get<std::string>(),
                   json.at("here").get<bool>(),
                   {json.at("pid").get<pid_t>(), json.at("start_ticks").get<uint64_t>(), state.empty() ? '?' : state[0],
                    channel.is_null() ? std::string() : channel.get<std::string>()}});
  }
  return all;
}

}  // namespace dslaunch::launch
