#include "runtime/checkpoint/resume_plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/content_hash.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

// Which parts of one checkpoint the nodes have.
struct Holders {
  const OfferedCheckpoint* any = nullptr;
  std::map<int, std::set<std::string>> lacking;  // by leader; nodes without its manifest are not in it
  std::map<std::string, std::string> host_of;    // of shards that some node lacks, as named in the manifest
};

using Key = std::pair<int64_t, std::string>;  // step, id

std::map<Key, Holders> by_checkpoint(const std::vector<ResumeOffer>& offers) {
  std::map<Key, Holders> out;
  for (const auto& offer : offers) {
    for (const auto& checkpoint : offer.checkpoints) {
      auto& holders = out[{checkpoint.step, checkpoint.id}];
      if (!holders.any) holders.any = &checkpoint;
      auto& lacking = holders.lacking[offer.leader];
      for (const auto& file : checkpoint.elsewhere) {
        lacking.insert(file.name);
        holders.host_of[file.name] = file.host;
      }
    }
  }
  return out;
}

int holder_of(const Holders& holders, const std::string& shard) {
  for (const auto& [leader, lacking] : holders.lacking) {
    if (!lacking.count(shard)) return leader;
  }
  return -1;
}

// The candidate, or the files that no node has.
struct Classification {
  ResumeCandidate candidate;
  std::vector<CheckpointFile> unavailable;
};

Classification classify(const Holders& holders, size_t num_nodes) {
  Classification out;
  auto& candidate = out.candidate;
  candidate.step = holders.any->step;
  candidate.path = holders.any->path;
  candidate.id = holders.any->id;
  candidate.manifest_sender = holders.lacking.begin()->first;
  candidate.manifest_is_everywhere = holders.lacking.size() == num_nodes;
  for (int rank = 0; rank < holders.any->world_size; ++rank) {
    const std::string shard = shard_name(rank);
    const auto host = holders.host_of.find(shard);
    if (candidate.manifest_is_everywhere && host == holders.host_of.end()) continue;  // all nodes have it
    const int holder = holder_of(holders, shard);
    if (holder >= 0) candidate.shard_senders[shard] = holder;
    if (holder < 0) out.unavailable.push_back({.name = shard, .host = host->second});
  }
  return out;
}

std::optional<int64_t> latest_of(const std::vector<ResumeOffer>& offers) {
  std::optional<int64_t> latest;
  for (const auto& offer : offers) {
    if (offer.latest && (!latest || *offer.latest > *latest)) latest = offer.latest;
  }
  return latest;
}

Json json_of(const std::vector<CheckpointFile>& files) {
  Json json = Json::array();
  for (const auto& file : files) json.push_back({file.name, file.host});
  return json;
}

}  // namespace

ResumeOffer offer_of(std::vector<FoundCheckpoint> found, std::optional<int64_t> latest, int leader,
                     const std::string& host) {
  ResumeOffer offer{leader, host, latest, {}, {}, {}};
  for (auto& checkpoint : found) {
    if (!checkpoint.loadable.ok()) {
      offer.incomplete.push_back(fmt::format("'{}': {}", checkpoint.path, checkpoint.loadable.error()));
      if (!checkpoint.is_leftover && checkpoint.has_manifest) offer.damaged.push_back(checkpoint.step.value_or(0));
      continue;
    }
    const auto& manifest = *checkpoint.manifest;
    const auto& text = checkpoint.manifest_text;
    OfferedCheckpoint offered{
        manifest.metadata.step, checkpoint.path, content_hash(text.data(), text.size()), manifest.world_size, {}};
    for (const auto& file : checkpoint.elsewhere) {
      if (is_shard_name(file.name)) offered.elsewhere.push_back(file);
    }
    offer.checkpoints.push_back(std::move(offered));
  }
  return offer;
}

ResumePlan plan_resume(const std::vector<ResumeOffer>& offers) {
  ResumePlan plan;
  for (const auto& offer : offers) {
    plan.has_damaged |= !offer.damaged.empty();
    for (const auto& incomplete : offer.incomplete) {
      plan.skipped.push_back(offers.size() > 1 ? fmt::format("{}: {}", offer.host, incomplete) : incomplete);
    }
  }
  for (const auto& [key, holders] : by_checkpoint(offers)) {
    auto classification = classify(holders, offers.size());
    if (classification.unavailable.empty()) {
      plan.candidates.push_back(std::move(classification.candidate));
      continue;
    }
    plan.has_damaged = true;
    plan.skipped.push_back(fmt::format("'{}': {} {} on no host of this job", holders.any->path,
                                       describe_by_host(classification.unavailable),
                                       classification.unavailable.size() == 1 ? "is" : "are"));
  }
  const auto latest = latest_of(offers);
  std::stable_sort(plan.candidates.begin(), plan.candidates.end(),
                   [&](const auto& a, const auto& b) { return is_preferred(a.step, b.step, latest); });
  for (const auto& offer : offers) {
    for (const int64_t step : offer.damaged) {
      plan.newest_is_damaged |= plan.candidates.empty() || is_preferred(step, plan.candidates.front().step, latest);
    }
  }
  return plan;
}

std::string to_text(const ResumeOffer& offer) {
  Json json{{"leader", offer.leader},
            {"host", offer.host},
            {"latest", offer.latest ? Json(*offer.latest) : Json()},
            {"checkpoints", Json::array()},
            {"torn", offer.incomplete},
            {"damaged", offer.damaged}};
  for (const auto& checkpoint : offer.checkpoints) {
    json["checkpoints"].push_back(
        {checkpoint.step, checkpoint.path, checkpoint.id, checkpoint.world_size, json_of(checkpoint.elsewhere)});
  }
  return dump_json(json);
}

ResumeOffer offer_from(const std::string& text) {
  const Json json = Json::parse(text);
  ResumeOffer offer;
  offer.leader = json.at("leader").get<int>();
  offer.host = json.at("host").get<std::string>();
  if (!json.at("latest").is_null()) offer.latest = json.at("latest").get<int64_t>();
  for (const auto& item : json.at("checkpoints")) {
    OfferedCheckpoint checkpoint{item.at(0).get<int64_t>(),
                                 item.at(1).get<std::string>(),
                                 item.at(2).get<std::string>(),
                                 item.at(3).get<int>(),
                                 {}};
    for (const auto& file : item.at(4)) {
      checkpoint.elsewhere.push_back({.name = file.at(0).get<std::string>(), .host = file.at(1).get<std::string>()});
    }
    offer.checkpoints.push_back(std::move(checkpoint));
  }
  offer.incomplete = json.at("torn").get<std::vector<std::string>>();
  offer.damaged = json.at("damaged").get<std::vector<int64_t>>();
  return offer;
}

std::string to_text(const ResumePlan& plan) {
  Json json{{"candidates", Json::array()},
            {"passed_over", plan.skipped},
            {"has_damaged", plan.has_damaged},
            {"newest_is_damaged", plan.newest_is_damaged}};
  for (const auto& candidate : plan.candidates) {
    json["candidates"].push_back({candidate.step, candidate.path, candidate.id, candidate.manifest_sender,
                                  candidate.manifest_is_everywhere, candidate.shard_senders});
  }
  return dump_json(json);
}

ResumePlan plan_from(const std::string& text) {
  const Json json = Json::parse(text);
  ResumePlan plan;
  for (const auto& item : json.at("candidates")) {
    plan.candidates.push_back({item.at(0).get<int64_t>(), item.at(1).get<std::string>(), item.at(2).get<std::string>(),
                               item.at(3).get<int>(), item.at(4).get<bool>(),
                               item.at(5).get<std::map<std::string, int>>()});
  }
  plan.skipped = json.at("passed_over").get<std::vector<std::string>>();
  plan.has_damaged = json.at("has_damaged").get<bool>();
  plan.newest_is_damaged = json.at("newest_is_damaged").get<bool>();
  return plan;
}

}  // namespace dslaunch::runtime
