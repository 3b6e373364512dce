// Which checkpoint a job resumes from. Every node offers the checkpoints it sees; a checkpoint is usable when each of
// its shards is on some node. Pure: checkpoint_restore does the communication and the reading.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_survey.hpp"

namespace dslaunch::runtime {

struct OfferedCheckpoint {
  int64_t step = 0;
  std::string path;
  std::string id;  // hash of the manifest: the same step of another run is a different checkpoint
  int world_size = 1;
  std::vector<CheckpointFile> elsewhere;  // shards that this node lacks
};

// The checkpoints that one node sees.
struct ResumeOffer {
  int leader = 0;  // the rank that looked for them
  std::string host;
  std::optional<int64_t> latest;
  std::vector<OfferedCheckpoint> checkpoints;
  std::vector<std::string> incomplete;  // "'DIR/step_00000030': it has no manifest.json"
  std::vector<int64_t> damaged;         // steps of checkpoints that were once complete
};

struct ResumeCandidate {
  int64_t step = 0;
  std::string path, id;
  int manifest_sender = 0;                   // the lowest leader that has its manifest
  bool manifest_is_everywhere = true;        // otherwise that sender sends it to all
  std::map<std::string, int> shard_senders;  // shards that some node lacks -> the lowest leader that has the shard
};

struct ResumePlan {
  std::vector<ResumeCandidate> candidates;  // best first
  std::vector<std::string> skipped;         // unusable checkpoints, and why: one line each
  bool has_damaged = false;                 // there were checkpoints that are no longer usable
  bool newest_is_damaged = false;           // one of them would have been the first choice
};

ResumeOffer offer_of(std::vector<FoundCheckpoint> found, std::optional<int64_t> latest, int leader,
                     const std::string& host);
ResumePlan plan_resume(const std::vector<ResumeOffer>& offers);

// As one line of text, for the store.
std::string to_text(const ResumeOffer& offer);
ResumeOffer offer_from(const std::string& text);
std::string to_text(const ResumePlan& plan);
ResumePlan plan_from(const std::string& text);

}  // namespace dslaunch::runtime
